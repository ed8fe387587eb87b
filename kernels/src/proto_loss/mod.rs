//! The loss of prototypical networks.

pub(crate) mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::distances::Metric;
use crate::host::{unwrap, wrap};
use crate::metrics::{LossCall, check_labels, check_prototypes, table};

/// The result of [`proto_loss`].
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
            let output = (table.proto_loss)(call, of, labels.into_primitive(), false);
            ProtoLoss { loss: wrap(output.loss), correct: wrap(output.correct) }
        }
        None => reference::proto_loss(queries, prototypes, labels, metric, scale),
    }
}

/// The result of [`episode_proto_loss`].
#[derive(Clone, Debug)]
pub struct EpisodeProtoLoss<B: Backend> {
    /// Mean over all queries, `[1]`.
    pub loss: Tensor<B, 1>,
    /// The share of queries whose largest score is at their label, `[1]`, detached.
    pub accuracy: Tensor<B, 1>,
}

/// The [`proto_loss`](proto_loss()) of episodes, from the embeddings of their support and queries in one tensor:
/// [`prototypes`](crate::prototypes()), distances, softmax and loss in one pass, the gradient by its formula.
///
/// # Shapes
/// - `embeddings`: `[t, n + q, d]`, of `n` support examples, then of `q` queries
/// - `labels`: of the support `[t, n]` and of the queries `[t, q]`, from 0 to `ways - 1`
///
/// # Panics
/// When the shapes do not fit, or there is no task, no support or no query; where labels are in host memory, for a label
/// without a class too. On an accelerator a support example of such a label belongs to no class, and a query
/// makes the loss NaN.
///
/// # Source
/// The paper of [`proto_loss`](proto_loss()), with equation 1 of Snell et al.
pub fn episode_proto_loss<B: Backend>(
    embeddings: Tensor<B, 3>,
    labels: [Tensor<B, 2, Int>; 2],
    ways: usize,
    metric: Metric,
    scale: f64,
) -> EpisodeProtoLoss<B> {
    let [tasks, rows, features] = embeddings.dims();
    let [examples, queries] = labels.each_ref().map(|labels| labels.dims()[1]);
    assert!(
        tasks > 0 && examples > 0 && queries > 0 && examples + queries == rows,
        "embeddings [{tasks}, {rows}, {features}] need tasks, and in each labels of support and of queries, \
         as many as embeddings, found {examples} and {queries}"
    );
    for (labels, count) in labels.iter().zip([examples, queries]) {
        check_labels([tasks, count, features], labels.dims());
    }
    match table::<B>("episode_proto_loss", &[&embeddings]) {
        Some(table) => {
            let labels = labels.map(Tensor::into_primitive);
            let call = LossCall { metric, scale };
            let output = (table.episode_loss)(call, unwrap(embeddings), labels, ways, false);
            EpisodeProtoLoss { loss: wrap(output.loss), accuracy: wrap(output.accuracy) }
        }
        None => reference::episode_proto_loss(embeddings, labels, ways, metric, scale),
    }
}
