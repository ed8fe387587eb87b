//! The loss of prototypical networks and its gradient in plain Burn operations.

use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use super::{EpisodeProtoLoss, ProtoLoss};
use crate::distances::{Metric, reference};
use crate::prototypes;

/// See [`proto_loss`](super::proto_loss()).
pub fn proto_loss<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    metric: Metric,
    scale: f64,
) -> ProtoLoss<B> {
    let [tasks, count, _] = queries.dims();
    let logits = reference::scores(queries, prototypes, metric) * scale;
    let predicted = logits.clone().detach().argmax(2).reshape([tasks, count]);
    let correct = predicted.equal(labels.clone()).float().cast(logits.dtype());
    let at_label = log_softmax(logits, 2).gather(2, labels.unsqueeze_dim(2));
    ProtoLoss { loss: at_label.mean().neg(), correct }
}

/// See [`episode_proto_loss`](super::episode_proto_loss()).
pub fn episode_proto_loss<B: Backend>(
    embeddings: Tensor<B, 3>,
    [of_support, of_queries]: [Tensor<B, 2, Int>; 2],
    ways: usize,
    metric: Metric,
    scale: f64,
) -> EpisodeProtoLoss<B> {
    let [[_, examples], [_, queries]] = [of_support.dims(), of_queries.dims()];
    let support = embeddings.clone().narrow(1, 0, examples);
    let queries = embeddings.narrow(1, examples, queries);
    let prototypes = prototypes::reference::prototypes(support, of_support, ways);
    let ProtoLoss { loss, correct } = proto_loss(queries, prototypes, of_queries, metric, scale);
    EpisodeProtoLoss { loss, accuracy: correct.mean() }
}

/// The gradients of the loss by queries and by prototypes, with the `softmax` of the last dimension.
pub fn proto_loss_gradients<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    metric: Metric,
    scale: f64,
    softmax: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
) -> [Tensor<B, 3>; 2] {
    let [tasks, count, _] = queries.dims();
    let ways = prototypes.dims()[1];
    let logits = reference::scores(queries.clone(), prototypes.clone(), metric) * scale;
    let likely = softmax(logits);
    let shape = [tasks, count, ways];
    let classes = Tensor::<B, 1, Int>::arange(0..ways as i64, &labels.device());
    let classes = classes.reshape([1, 1, ways]).expand(shape);
    let targets = labels.unsqueeze_dim::<3>(2).expand(shape).equal(classes).float();
    let g = likely.clone() - targets.cast(likely.dtype());
    let g = g * (scale / (tasks * count) as f64);
    reference::scores_gradients(g, queries, prototypes, metric)
}
