//! Averages under one level of autodiff: two linear maps, each the transpose of the other.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::ops::FloatTensor;

use crate::host::wrap;
use crate::layers::FusedLayers;
use crate::layers::node::{parents, record, register};

#[derive(Debug)]
struct Mean;

impl<B: FusedLayers> Backward<B, 1> for Mean {
    /// Size of a plane.
    type State = [usize; 2];

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x] = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        register::<B>(grads, of_x, || B::plane_spread(g, ops.state));
    }
}

#[derive(Debug)]
struct Spread;

impl<B: FusedLayers> Backward<B, 1> for Spread {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_u] = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        register::<B>(grads, of_u, || B::plane_mean(g));
    }
}

pub fn mean<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let [_, _, h, w] = wrap::<B, 4>(x.primitive.clone()).dims();
    let output = B::plane_mean(x.primitive.clone());
    record::<B, C, 1, _>(Mean, [&x], || [h, w], output)
}

pub fn spread<B: FusedLayers, C: CheckpointStrategy>(
    u: FloatTensor<Autodiff<B, C>>,
    size: [usize; 2],
) -> FloatTensor<Autodiff<B, C>> {
    let output = B::plane_spread(u.primitive.clone(), size);
    record::<B, C, 1, _>(Spread, [&u], || (), output)
}
