use burn::tensor::backend::Backend;

use super::{AdaptableNetwork, Annealing, Maml};
use crate::adapt::{AdaptError, InnerLoop, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// MAML++: MAML with a learned rate for each tensor and inner step, gains and shifts of
    /// batch-norm learned for each inner step, and at first the query losses after all steps in the
    /// outer loss and gradients of first order, as `annealing` says.
    ///
    /// A trainer tells the learner where it is by [`at_step`](crate::learners::MetaLearner::at_step).
    ///
    /// # Conventions
    /// Batch-norm normalises with the batch at hand throughout, as does the authors' code, which also
    /// keeps running averages for each step and never reads them. The gains and shifts of a step are used
    /// for its support and the queries after it, and the inner loop does not adapt them; they are
    /// initialised by the network's own. A test with more steps uses the last rates, gains and shifts for
    /// the rest. The cosine schedule of the outer learning rate is the trainer's.
    ///
    /// # Errors
    /// As [`Maml::new`], where gains and shifts are no adapted parameters.
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019.
    pub fn plus_plus(
        network: N,
        inner: InnerLoop,
        annealing: Annealing,
    ) -> Result<Self, AdaptError> {
        let learner = Self::named("maml++", network, inner, RateKind::PerStepWithNorms)?;
        Ok(learner.set(|settings| settings.annealing = Some(annealing)))
    }
}
