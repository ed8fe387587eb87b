use burn::tensor::backend::Backend;
use fewshot_models::Classifier;

use super::{AdaptableEncoder, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, RateKind};

impl<B: Backend, E: AdaptableEncoder<B>> Maml<B, E> {
    /// Body only in the inner loop: the encoder alone adapts, the head learns in the outer loop.
    ///
    /// # Errors
    /// As [`Maml::new`].
    ///
    /// # Source
    /// Oh, Yoo, Kim and Yun, "BOIL: Towards Representation Change for Few-shot Learning", ICLR 2021.
    pub fn boil(classifier: Classifier<B, E>, inner: InnerLoop) -> Result<Self, AdaptError> {
        let body = Mask::Only(vec!["encoder".to_owned()]);
        Self::named("boil", classifier, inner.with_mask(body), RateKind::Fixed)
    }
}
