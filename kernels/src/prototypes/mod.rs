//! The mean embedding of each class.

pub(crate) mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;
pub(crate) mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::host::{unwrap, wrap};
use crate::metrics::{check_labels, table};

/// The mean embedding of each class.
///
/// # Shapes
/// - `embeddings`: `[t, n, d]`
/// - `labels`: `[t, n]`, from 0 to `ways - 1`
/// - returns `[t, ways, d]`; not a number for a class without an example
///
/// # Panics
/// When the shapes do not fit; where labels are in host memory,
/// for a label without a class too. On an accelerator such an example belongs to no class.
///
/// # Source
/// Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, equation 1.
pub fn prototypes<B: Backend>(
    embeddings: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    ways: usize,
) -> Tensor<B, 3> {
    check_labels(embeddings.dims(), labels.dims());
    match table::<B>("prototypes", &[&embeddings]) {
        Some(table) => {
            let labels = labels.into_primitive();
            wrap((table.class_means)(unwrap(embeddings), labels, ways))
        }
        None => reference::prototypes(embeddings, labels, ways),
    }
}
