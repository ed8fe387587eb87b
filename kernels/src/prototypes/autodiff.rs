//! Class means and their transpose under one level of autodiff, each the other's derivative.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::TensorMetadata;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::layers::node::{parents, record, register};
use crate::metrics::FusedMetrics;

#[derive(Debug)]
struct Means;

impl<B: FusedMetrics> Backward<B, 1> for Means {
    type State = IntTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x] = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        register::<B>(grads, of_x, || B::class_spread(g, ops.state));
    }
}

#[derive(Debug)]
struct Spread;

impl<B: FusedMetrics> Backward<B, 1> for Spread {
    /// The labels, and how many classes there are.
    type State = (IntTensor<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_g] = parents(&ops);
        let u = grads.consume::<B>(&ops.node);
        let (labels, ways) = ops.state;
        register::<B>(grads, of_g, || B::class_means(u, labels, ways));
    }
}

pub fn class_means<B: FusedMetrics, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    labels: IntTensor<B>,
    ways: usize,
) -> FloatTensor<Autodiff<B, C>> {
    let means = B::class_means(x.primitive.clone(), labels.clone(), ways);
    record::<B, C, 1, _>(Means, [&x], || labels, means)
}

pub fn class_spread<B: FusedMetrics, C: CheckpointStrategy>(
    g: FloatTensor<Autodiff<B, C>>,
    labels: IntTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let ways = g.primitive.shape()[1];
    let rows = B::class_spread(g.primitive.clone(), labels.clone());
    record::<B, C, 1, _>(Spread, [&g], || (labels, ways), rows)
}
