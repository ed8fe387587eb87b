use burn::tensor::backend::Backend;
use fewshot_models::{Classifier, Encoder};

use super::maml::Head;
use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, RateKind, slots};

impl<B: Backend, E: Encoder<B>> Maml<B, Classifier<B, E>>
where
    Classifier<B, E>: AdaptableNetwork<B>,
{
    /// Proto-MAML: the inner loop begins with the head that classifies as a prototypical network
    /// does, `2 c_k^T f(x) - |c_k|^2` with the class means `c_k` of the support's embeddings, and
    /// the outer gradient goes through these means as well. The classifier's own head is not used.
    ///
    /// # Panics
    /// When the head has no bias.
    ///
    /// # Source
    /// Triantafillou et al., "Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few
    /// Examples", ICLR 2020.
    pub fn prototypical(
        classifier: Classifier<B, E>,
        inner: InnerLoop,
    ) -> Result<Self, AdaptError> {
        let slots = slots::<B, _>(&classifier);
        let head = ["head.weight", "head.bias"].map(|name| {
            let slot = slots.iter().position(|slot| slot.path == name);
            slot.expect("a classifier's head has a weight and a bias")
        });
        let learner = Self::named("proto-maml", classifier, inner, RateKind::Fixed)?;
        Ok(learner.set(|settings| settings.head = Head::Prototypes(head)))
    }
}
