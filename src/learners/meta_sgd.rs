use burn::tensor::backend::Backend;

use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Meta-SGD: every value that adapts has a learned rate of its own, `theta - alpha * g`.
    ///
    /// # Conventions
    /// All rates begin at `inner`'s; the authors draw them uniformly from 0.005 to 0.1.
    ///
    /// # Source
    /// Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot Learning", 2017.
    pub fn meta_sgd(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("meta-sgd", network, inner, RateKind::PerValue)
    }

    /// MAML with a learned rate for each tensor and step, as in MAML++.
    ///
    /// # Conventions
    /// All rates begin at `inner`'s. A test with more steps goes on with the last ones.
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019, section 4.
    pub fn with_rates_per_step(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("maml-lslr", network, inner, RateKind::PerStep)
    }
}
