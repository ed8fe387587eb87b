//! The loss of prototypical networks.

pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::distances::Metric;
use crate::host::{unwrap, wrap};
use crate::metrics::{LossCall, check_labels, check_prototypes, table};

/// What [`proto_loss`] returns.
#[derive(Clone, Debug)]
pub struct ProtoLoss<B: Backend> {
    /// Mean over all queries, `[1]`; not a number without any.
    pub loss: Tensor<B, 1>,
    /// One for every query whose largest score is at its label, else zero: `[t, q]`, detached.
    pub correct: Tensor<B, 2>,
}

/// The mean over all queries of `-log softmax(scale * scores)` at their labels: distances, softmax
/// and loss in one pass, the gradient by its formula.
///
/// Equal to `cross_entropy(scale * scores(queries, prototypes, metric), labels)`.
///
/// # Shapes
/// - `queries`: `[t, q, d]`
/// - `prototypes`: `[t, ways, d]`
/// - `labels`: `[t, q]`, from 0 to `ways - 1`
///
/// # Panics
/// When the shapes do not fit; where labels are in host memory,
/// for a label without a class too. On an accelerator such a query makes the loss NaN.
///
/// # Source
/// Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, equation 2; the factor
/// as in Oreshkin et al., "TADAM", NeurIPS 2018.
pub fn proto_loss<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    metric: Metric,
    scale: f64,
) -> ProtoLoss<B> {
    check_prototypes(queries.dims(), prototypes.dims());
    check_labels(queries.dims(), labels.dims());
    match table::<B>("proto_loss", &[&queries, &prototypes]) {
        Some(table) => {
            let of = [queries, prototypes].map(unwrap);
            let call = LossCall { metric, scale };
            let found = (table.proto_loss)(call, of, labels.into_primitive(), false);
            ProtoLoss { loss: wrap(found.loss), correct: wrap(found.correct) }
        }
        None => reference::proto_loss(queries, prototypes, labels, metric, scale),
    }
}
