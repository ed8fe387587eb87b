use burn::tensor::backend::Backend;

use super::maml::Outer;
use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Order, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Reptile: parameters move towards where the inner loop goes, `theta <- theta + e (theta' -
    /// theta)`.
    ///
    /// Each inner step takes `batch` examples, in random order one after the other. In training
    /// they are those of support and queries together. What stands for the gradient is `theta -
    /// theta'`, averaged over tasks: [`Sgd`](crate::optim::Sgd) at rate `e` makes the paper's step,
    /// and another optimizer one that the paper proposes in its section 2.
    ///
    /// # Conventions
    /// Every task begins with a fresh inner optimizer; in the authors' code the moments of Adam go
    /// on from task to task. A test under [`QueryNorm::Together`](super::QueryNorm::Together) is
    /// what the paper calls transductive.
    ///
    /// # Errors
    /// As [`Maml::new`], and when a mini-batch has no example.
    ///
    /// # Source
    /// Nichol, Achiam and Schulman, "On First-Order Meta-Learning Algorithms", 2018.
    pub fn reptile(network: N, inner: InnerLoop, batch: usize) -> Result<Self, AdaptError> {
        if batch == 0 {
            let (name, wanted) = ("mini-batch", "at least 1");
            return Err(AdaptError::Setting { name, wanted, found: 0.0 });
        }
        let learner =
            Self::named("reptile", network, inner.with_order(Order::First), RateKind::Fixed)?;
        Ok(learner.with_outer(Outer::Displacement).with_batch(batch))
    }
}
