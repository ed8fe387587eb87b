use burn::tensor::backend::Backend;

use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Meta-Curvature: learned matrices transform the inner gradient `G` of every tensor, one along
    /// each of its modes, `theta - rate * (G x_1 M_1 x_2 M_2 x_3 M_3)`.
    ///
    /// A convolution's weight `[cout, cin, kh, kw]` has matrices for its output channels, its input
    /// channels and all positions of its kernel, a linear weight two, a vector one.
    ///
    /// # Conventions
    /// All matrices begin at the identity, where this is MAML; the rate stays `inner`'s. Under a
    /// rule with momentum or Adam it is the direction that they transform.
    ///
    /// # Source
    /// Park and Oliva, "Meta-Curvature", NeurIPS 2019.
    pub fn meta_curvature(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("meta-curvature", network, inner, RateKind::Curvature)
    }
}
