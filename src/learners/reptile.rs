use burn::tensor::backend::Backend;

use super::maml::Outer;
use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Order, RateKind, setting};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Reptile: parameters move towards where the inner loop goes, `theta <- theta + e (theta' -
    /// theta)`.
    ///
    /// Each inner step takes `batch` examples, in random order one after the other. In training
    /// these are examples of support and queries together. In place of the gradient stands `theta -
    /// theta'`, averaged over tasks: [`Sgd`](crate::optim::Sgd) at rate `e` makes the paper's step,
    /// and another optimizer one that the paper proposes in its section 2.
    ///
    /// # Conventions
    /// The second moments of an inner Adam go on from one batch of tasks to the next and to the test,
    /// as in the authors' code, where they go on from task to task; they are saved with the learner. Its
    /// first moments, and the velocity of momentum, begin anew with each task. A test under
    /// [`QueryNorm::Together`](crate::learners::QueryNorm::Together) is what the paper calls
    /// transductive.
    ///
    /// # Errors
    /// As [`Maml::new`], and when a mini-batch has no example.
    ///
    /// # Source
    /// Nichol, Achiam and Schulman, "On First-Order Meta-Learning Algorithms", 2018.
    pub fn reptile(network: N, inner: InnerLoop, batch: usize) -> Result<Self, AdaptError> {
        setting("mini-batch", "at least 1", batch as f64, batch > 0)?;
        let inner = inner.with_order(Order::First);
        let learner = Self::named("reptile", network, inner, RateKind::Fixed)?;
        Ok(learner.with_lasting_moments().set(|settings| {
            settings.outer = Outer::Displacement;
            settings.batch = [Some(batch); 2];
        }))
    }
}
