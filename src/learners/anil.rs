use burn::tensor::backend::Backend;
use fewshot_models::Classifier;

use super::{AdaptableEncoder, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, RateKind};

impl<B: Backend, E: AdaptableEncoder<B>> Maml<B, E> {
    /// Almost no inner loop: the head alone adapts, the encoder learns in the outer loop.
    ///
    /// # Errors
    /// As [`Maml::new`].
    ///
    /// # Source
    /// Raghu, Raghu, Bengio and Vinyals, "Rapid Learning or Feature Reuse? Towards Understanding
    /// the Effectiveness of MAML", ICLR 2020.
    pub fn anil(classifier: Classifier<B, E>, inner: InnerLoop) -> Result<Self, AdaptError> {
        let head = Mask::Only(vec!["head".to_owned()]);
        Self::named("anil", classifier, inner.with_mask(head), RateKind::Fixed)
    }
}
