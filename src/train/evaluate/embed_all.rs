use burn::tensor::backend::Backend;

use crate::data::{ClassDataset, DataError, Features, QuarterTurn};
use crate::episode::{ImageRef, images};
use crate::learners::OnEmbeddings;

/// Images in a batch of the network.
const BATCH: usize = 256;

/// The embeddings of all images of a dataset, upright.
///
/// # Errors
/// Where two classes have one name, or an embedding is not finite.
pub fn embed_all<B: Backend>(
    learner: &dyn OnEmbeddings<B>,
    dataset: &dyn ClassDataset,
    device: &B::Device,
) -> Result<Features, DataError> {
    let mut length = 0;
    let mut classes = Vec::with_capacity(dataset.classes());
    for class in 0..dataset.classes() {
        let shown = |example| ImageRef { class, example, turn: QuarterTurn::R0 };
        let shown: Vec<_> = (0..dataset.examples(class)).map(shown).collect();
        let mut rows = Vec::new();
        for batch in shown.chunks(BATCH) {
            // On a backend that differentiates nobody will ask for gradients.
            let embedded = learner.embed(images(dataset, batch, device)).detach();
            length = embedded.dims()[1];
            rows.extend(embedded.into_data().iter::<f32>());
        }
        classes.push((dataset.class_name(class), rows));
    }
    Features::new(length, classes)
}
