//! Max-pooling under one level of autodiff.
//!
//! Which pixel of a window is taken does not change with a small change of `x`, so `x` only selects:
//! the gradient scatters, the gradient of that gathers, and so on.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::ops::FloatTensor;

use crate::layers::FusedLayers;
use crate::layers::node::{parents, record, register};

/// A pool or a gathering, whose gradient is scattered; the state is what selects.
#[derive(Debug)]
struct Gathered;

impl<B: FusedLayers> Backward<B, 1> for Gathered {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_values] = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        register::<B>(grads, of_values, || B::pool_scatter(ops.state, g));
    }
}

/// A scattering, whose gradient is gathered; the state is what selects.
#[derive(Debug)]
struct Scattered;

impl<B: FusedLayers> Backward<B, 1> for Scattered {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_values] = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        register::<B>(grads, of_values, || B::pool_gather(ops.state, g));
    }
}

pub fn pool<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let output = B::pool(x.primitive.clone());
    record::<B, C, 1, _>(Gathered, [&x], || x.primitive.clone(), output)
}

pub fn scatter<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    dy: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let output = B::pool_scatter(x.primitive.clone(), dy.primitive.clone());
    record::<B, C, 1, _>(Scattered, [&dy], || x.primitive, output)
}

pub fn gather<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    u: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let output = B::pool_gather(x.primitive.clone(), u.primitive.clone());
    record::<B, C, 1, _>(Gathered, [&u], || x.primitive, output)
}
