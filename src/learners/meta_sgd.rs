use burn::tensor::backend::Backend;
use fewshot_models::Classifier;

use super::{AdaptableEncoder, Maml};
use crate::adapt::{AdaptError, InnerLoop, RateKind};

impl<B: Backend, E: AdaptableEncoder<B>> Maml<B, E> {
    /// Meta-SGD: every value that adapts has a learned rate of its own, `theta - alpha * g`.
    ///
    /// # Conventions
    /// All rates begin at `inner`'s; the authors draw them uniformly from 0.005 to 0.1.
    ///
    /// # Errors
    /// As [`Maml::new`].
    ///
    /// # Source
    /// Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot Learning", 2017.
    pub fn meta_sgd(classifier: Classifier<B, E>, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("meta-sgd", classifier, inner, RateKind::PerValue)
    }

    /// MAML with a learned rate for each tensor and step, as in MAML++.
    ///
    /// # Conventions
    /// All rates begin at `inner`'s. A test with more steps goes on with the last ones.
    ///
    /// # Errors
    /// As [`Maml::new`].
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019, section 4.
    pub fn with_rates_per_step(
        classifier: Classifier<B, E>,
        inner: InnerLoop,
    ) -> Result<Self, AdaptError> {
        Self::named("maml-lslr", classifier, inner, RateKind::PerStep)
    }
}
