//! Fused metrics under one level of autodiff, over any backend that has them.
//!
//! The gradient of a loss is computed with it, where one is wanted at all: it costs two more matrix
//! products while the operands are in cache, and the backward pass then only scales it. Over a level
//! of autodiff below, it is made of plain operations, and so can be differentiated.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorMetadata, activation};

use super::{EpisodeLoss, FusedMetrics, LossCall, LossOutput, composed_episode_loss};
use crate::distances::{self, Metric};
use crate::host::{unwrap, wrap, zeros};
use crate::layers::node::record;
use crate::{proto_loss, variadic_op};

impl<B: FusedMetrics, C: CheckpointStrategy> FusedMetrics for Autodiff<B, C> {
    fn class_means(
        x: FloatTensor<Self>,
        labels: IntTensor<Self>,
        ways: usize,
    ) -> FloatTensor<Self> {
        let means = B::class_means(x.primitive.clone(), labels.clone(), ways);
        record::<B, C, 1>([&x], means, |g, _| [Some(B::class_spread(g, labels))])
    }

    fn class_spread(g: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        let ways = g.shape()[1];
        let rows = B::class_spread(g.primitive.clone(), labels.clone());
        record::<B, C, 1>([&g], rows, move |u, _| [Some(B::class_means(u, labels, ways))])
    }

    fn scores(metric: Metric, of: [FloatTensor<Self>; 2]) -> FloatTensor<Self> {
        let parents = of.each_ref();
        let of = parents.map(|tensor| tensor.primitive.clone());
        let scores = B::scores(metric, of.clone());
        record::<B, C, 2>(parents, scores, move |g, _| B::scores_gradients(metric, g, of).map(Some))
    }

    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<Self>,
        of: [FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 2] {
        let [queries, prototypes] = of.map(wrap::<Self, 3>);
        distances::reference::scores_gradients(wrap(g), queries, prototypes, metric).map(unwrap)
    }

    fn proto_loss(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
        gradients: bool,
    ) -> LossOutput<FloatTensor<Self>> {
        let differentiable = gradients.then(|| {
            let [queries, prototypes] = of.clone().map(wrap::<Self, 3>);
            let classes = Tensor::from_primitive(labels.clone());
            let (LossCall { metric, scale }, softmax) = (call, softmax::<B, C>);
            let gradients = proto_loss::reference::proto_loss_gradients(
                queries, prototypes, classes, metric, scale, softmax,
            );
            gradients.map(unwrap)
        });
        let values = of.each_ref().map(|tensor| tensor.primitive.clone());
        let is_tracked = of.iter().any(|tensor| tensor.is_tracked());
        let output = B::proto_loss(call, values, labels, is_tracked);
        let loss = record::<B, C, 2>(of.each_ref(), output.loss, |factor, requires_grad| {
            let [by_queries, by_prototypes] = output.gradients.expect("an operand is tracked");
            [
                requires_grad[0].then(|| B::scaled(by_queries, factor.clone())),
                requires_grad[1].then(|| B::scaled(by_prototypes, factor)),
            ]
        });
        let correct = <Self as AutodiffBackend>::from_inner(output.correct);
        LossOutput { loss, correct, gradients: differentiable }
    }

    fn episode_loss(
        call: LossCall,
        x: FloatTensor<Self>,
        labels: [IntTensor<Self>; 2],
        ways: usize,
        gradient: bool,
    ) -> EpisodeLoss<FloatTensor<Self>> {
        if gradient {
            return composed_episode_loss::<Self>(call, x, labels, ways, gradient);
        }
        let output = B::episode_loss(call, x.primitive.clone(), labels, ways, x.is_tracked());
        let loss = record::<B, C, 1>([&x], output.loss, |factor, _| {
            let gradient = output.gradient.expect("the embeddings are tracked");
            [Some(B::scaled(gradient, factor))]
        });
        let accuracy = <Self as AutodiffBackend>::from_inner(output.accuracy);
        EpisodeLoss { loss, accuracy, gradient: None }
    }

    /// The gradient of a split: those of the parts, concatenated.
    fn split_at(x: FloatTensor<Self>, at: usize) -> [FloatTensor<Self>; 2] {
        let parts = B::split_at(x.primitive.clone(), at);
        let shapes = parts.each_ref().map(TensorMetadata::shape);
        let (device, dtype) = (B::float_device(&parts[0]), parts[0].dtype());
        let parts = variadic_op::record::<B, C>(&[x], parts.into(), move |results, _| {
            let parts = results.into_iter().zip(shapes).map(|(gradient, shape)| {
                gradient.unwrap_or_else(|| zeros::<B>(shape, &device, dtype))
            });
            vec![Some(B::float_cat(parts.collect(), 1))]
        });
        parts.try_into().expect("two results of two parts")
    }
}

/// The softmax of the last dimension, whose derivative has no quotient: those of Burn's operations
/// multiply with a reciprocal, which is an estimate of 12 bits on NdArray.
fn softmax<B: FusedMetrics, C: CheckpointStrategy>(
    x: Tensor<Autodiff<B, C>, 3>,
) -> Tensor<Autodiff<B, C>, 3> {
    let x = unwrap(x);
    let likely = activation::softmax(wrap::<B, 3>(x.primitive.clone()), 2);
    let softmax = unwrap(likely.clone());
    wrap(record::<B, C, 1>([&x], softmax, |g, _| {
        let g = wrap::<B, 3>(g);
        let mean = (g.clone() * likely.clone()).sum_dim(2);
        [Some(unwrap((g - mean) * likely))]
    }))
}
