use burn::tensor::backend::Backend;

use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Order, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// First-order MAML: the outer gradient is that of the query loss at the fast weights.
    ///
    /// Training needs first derivatives only, so the network may contain any layer of Burn.
    ///
    /// # Source
    /// Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep
    /// Networks", ICML 2017, section 5.2.
    pub fn first_order(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("fomaml", network, inner.with_order(Order::First), RateKind::Fixed)
    }
}
