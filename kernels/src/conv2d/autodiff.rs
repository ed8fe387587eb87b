//! The convolution under one level of autodiff.
//!
//! `<dy, conv(x, w)>` is linear in each of its three operands. The derivative by one operand is a
//! form in the other two, and its derivatives are again of that kind: with the gradient `g` in the
//! place of the operand that was derived by, `dw` of `<dy, conv(g, w)>` and so on.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::ops::FloatTensor;

use super::shape::{ConvShape, Role};
use crate::layers::FusedConvolution;
use crate::layers::node::{parents, record, register};

#[derive(Debug)]
struct Derivative;

#[derive(Clone, Debug)]
struct State<T> {
    wanted: Role,
    /// In the order of their roles, which follow the wanted one.
    operands: [T; 2],
    shape: ConvShape,
}

impl<B: FusedConvolution> Backward<B, 2> for Derivative {
    type State = State<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_first, of_second] = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        let State { wanted, operands: [first, second], shape } = ops.state;
        let role = wanted.next();
        let others = [second, g.clone()];
        register::<B>(grads, of_first, || B::convolution(role, others, &shape));
        register::<B>(grads, of_second, || B::convolution(role.next(), [g, first], &shape));
    }
}

pub fn convolution<B: FusedConvolution, C: CheckpointStrategy>(
    wanted: Role,
    [first, second]: [FloatTensor<Autodiff<B, C>>; 2],
    shape: &ConvShape,
) -> FloatTensor<Autodiff<B, C>> {
    let operands = || [first.primitive.clone(), second.primitive.clone()];
    let output = B::convolution(wanted, operands(), shape);
    let state = || State { wanted, operands: operands(), shape: *shape };
    record::<B, C, 2, _>(Derivative, [&first, &second], state, output)
}
