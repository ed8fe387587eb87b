//! Passes under Burn's fusion: its streams are run up to the operands, and the passes themselves on the
//! backend below.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};
use burn_fusion::stream::OperationStreams;
use burn_fusion::{Fusion, FusionBackend, NoOp};
use burn_ir::{InitOperationIr, OperationIr, OperationOutput};

use super::{At, Forward, Leaf, MovedAlong, Passed, Passes, SmoothOps};
use crate::bundle::Places;
use crate::conv_stack::StackCall;
use crate::door::FusedOps;
use crate::fusion::Recorded;
use crate::linear_stack::LinearCall;
use crate::task_loss::{FusedTaskLoss, LossOf};

impl<B: FusionBackend + Leaf> Leaf for Fusion<B> {}

impl<B: FusionBackend + Leaf + FusedOps> FusedOps for Fusion<B>
where
    StackCall: Passes<B>,
    LinearCall: Passes<B>,
{
    fn conv_stack(
        operands: Vec<FloatTensor<Self>>,
        call: &StackCall,
    ) -> (FloatTensor<Self>, Vec<FloatTensor<Self>>) {
        let Forward { result, aside, .. } = <Self as SmoothOps>::forward(call, operands, false);
        (result, aside)
    }

    fn linear_stack(operands: Vec<FloatTensor<Self>>, call: &LinearCall) -> FloatTensor<Self> {
        <Self as SmoothOps>::forward(call, operands, false).result
    }
}

impl<B: FusionBackend + Leaf + FusedTaskLoss> FusedTaskLoss for Fusion<B>
where
    LossOf: Passes<B>,
{
    fn task_loss(operands: Vec<FloatTensor<Self>>, call: &LossOf) -> FloatTensor<Self> {
        <Self as SmoothOps>::forward(call, operands, false).result
    }
}

/// The tensor of the backend below.
fn lower<B: FusionBackend>(tensor: &Recorded<B>) -> FloatTensor<B> {
    tensor.client.clone().resolve_tensor_float::<B>(tensor.clone())
}

fn lower_all<B: FusionBackend>(tensors: &[Option<Recorded<B>>]) -> Places<B> {
    tensors.iter().map(|tensor| tensor.as_ref().map(lower::<B>)).collect()
}

/// A tensor of the backend below, on the device of `like`.
fn lift<B: FusionBackend>(tensor: FloatTensor<B>, like: &Recorded<B>) -> Recorded<B> {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let client = like.client.clone();
    let handle = B::float_tensor_handle(tensor);
    let made = InitOperationIr::create(shape, dtype, || client.register_tensor_handle(handle));
    let streams = OperationStreams::default();
    client.register(streams, OperationIr::Init(made), NoOp::<B>::new()).output()
}

fn lift_all<B: FusionBackend>(tensors: Places<B>, like: &Recorded<B>) -> Places<Fusion<B>> {
    tensors.into_iter().map(|tensor| tensor.map(|tensor| lift::<B>(tensor, like))).collect()
}

impl<B: FusionBackend + Leaf, S: Passes<B>> Passes<Fusion<B>> for S {
    type Tape = S::Tape;
    type Between = S::Between;
    type Tangent = S::Tangent;

    const READS_OPERANDS: bool = S::READS_OPERANDS;

    fn result(&self) -> Shape {
        Passes::<B>::result(self)
    }

    fn forward(&self, operands: &[Recorded<B>], keep: bool) -> Passed<Recorded<B>, S::Tape> {
        let lowered: Vec<_> = operands.iter().map(lower::<B>).collect();
        let Passed { result, aside, tape } = Passes::<B>::forward(self, &lowered, keep);
        let lift = |found| lift::<B>(found, &operands[0]);
        Passed { result: lift(result), aside: aside.into_iter().map(lift).collect(), tape }
    }

    fn backward(
        &self,
        At { tape, operands, device }: At<'_, Fusion<B>, S>,
        grad: &Recorded<B>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<Fusion<B>>, Option<S::Between>) {
        let operands: Vec<_> = operands.iter().map(lower::<B>).collect();
        let at = At { tape, operands: &operands, device };
        let (found, between) = Passes::<B>::backward(self, at, &lower::<B>(grad), wanted, keep);
        (lift_all::<B>(found, grad), between)
    }

    fn forward_along(
        &self,
        At { tape, operands, device }: At<'_, Fusion<B>, S>,
        direction: &[Option<Recorded<B>>],
    ) -> (Recorded<B>, S::Tangent) {
        let like = &operands[0];
        let lowered: Vec<_> = operands.iter().map(lower::<B>).collect();
        let at = At { tape, operands: &lowered, device };
        let (change, tangent) = Passes::<B>::forward_along(self, at, &lower_all::<B>(direction));
        (lift::<B>(change, like), tangent)
    }

    fn backward_along(
        &self,
        At { tape, operands, device }: At<'_, Fusion<B>, S>,
        MovedAlong { direction, tangent, between }: MovedAlong<'_, Fusion<B>, S>,
        change: Option<&Recorded<B>>,
        wanted: &[bool],
    ) -> Places<Fusion<B>> {
        let like = &operands[0];
        let lowered: Vec<_> = operands.iter().map(lower::<B>).collect();
        let at = At { tape, operands: &lowered, device };
        let direction = lower_all::<B>(direction);
        let moved = MovedAlong { direction: &direction, tangent, between };
        let change = change.map(lower::<B>);
        let found = Passes::<B>::backward_along(self, at, moved, change.as_ref(), wanted);
        lift_all::<B>(found, like)
    }
}
