//! Twice differentiable operations under Burn's fusion: its streams are run up to the operands, and the
//! passes themselves on the backend below.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use burn_fusion::stream::OperationStreams;
use burn_fusion::{Fusion, FusionBackend, NoOp};
use burn_ir::{InitOperationIr, OperationIr, OperationOutput};

use super::{
    ForwardOutput, Gradients, InnermostBackend, PrimalTensors, TangentTensors, TwiceDifferentiable,
};
use crate::fusion::Recorded;
use crate::variadic_op::OptionalTensors;

impl<B: FusionBackend + InnermostBackend> InnermostBackend for Fusion<B> {}

/// The tensor of the backend below.
fn lower<B: FusionBackend>(tensor: &Recorded<B>) -> FloatTensor<B> {
    tensor.client.clone().resolve_tensor_float::<B>(tensor.clone())
}

fn lower_all<B: FusionBackend>(tensors: &[Option<Recorded<B>>]) -> OptionalTensors<B> {
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

fn lift_all<B: FusionBackend>(
    tensors: OptionalTensors<B>,
    like: &Recorded<B>,
) -> OptionalTensors<Fusion<B>> {
    tensors.into_iter().map(|tensor| tensor.map(|tensor| lift::<B>(tensor, like))).collect()
}

impl<B: FusionBackend + InnermostBackend, S: TwiceDifferentiable<B>> TwiceDifferentiable<Fusion<B>>
    for S
{
    type Saved = S::Saved;
    type IntermediateGrads = S::IntermediateGrads;
    type SavedTangent = S::SavedTangent;

    const READS_OPERANDS: bool = S::READS_OPERANDS;

    fn forward(
        &self,
        operands: &[Recorded<B>],
        keep: bool,
    ) -> ForwardOutput<Recorded<B>, S::Saved> {
        let lowered: Vec<_> = operands.iter().map(lower::<B>).collect();
        let ForwardOutput { result, aux, saved } =
            TwiceDifferentiable::<B>::forward(self, &lowered, keep);
        let lift = |tensor| lift::<B>(tensor, &operands[0]);
        ForwardOutput { result: lift(result), aux: aux.into_iter().map(lift).collect(), saved }
    }

    fn vjp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, Fusion<B>, S>,
        along: Option<TangentTensors<'_, Fusion<B>, S>>,
        grad: Option<&Recorded<B>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<Fusion<B>, S::IntermediateGrads> {
        let lowered: Vec<_> = operands.iter().map(lower::<B>).collect();
        let primal = PrimalTensors { saved, operands: &lowered, device };
        let tangents = along.as_ref().map(|along| lower_all::<B>(along.tangents));
        let along = along.zip(tangents.as_ref()).map(|(along, tangents)| {
            let TangentTensors { saved_tangent, intermediate_grads, .. } = along;
            TangentTensors { tangents, saved_tangent, intermediate_grads }
        });
        let grad = grad.map(lower::<B>);
        let (gradients, intermediate_grads) =
            TwiceDifferentiable::<B>::vjp(self, primal, along, grad.as_ref(), requires_grad, keep);
        (lift_all::<B>(gradients, &operands[0]), intermediate_grads)
    }

    fn jvp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, Fusion<B>, S>,
        tangents: &[Option<Recorded<B>>],
    ) -> (Recorded<B>, S::SavedTangent) {
        let like = &operands[0];
        let lowered: Vec<_> = operands.iter().map(lower::<B>).collect();
        let primal = PrimalTensors { saved, operands: &lowered, device };
        let tangents = lower_all::<B>(tangents);
        let (tangent, saved_tangent) = TwiceDifferentiable::<B>::jvp(self, primal, &tangents);
        (lift::<B>(tangent, like), saved_tangent)
    }

    fn saved_tangent(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, Fusion<B>, S>,
        tangents: &[Option<Recorded<B>>],
    ) -> S::SavedTangent {
        let operands: Vec<_> = operands.iter().map(lower::<B>).collect();
        let primal = PrimalTensors { saved, operands: &operands, device };
        TwiceDifferentiable::<B>::saved_tangent(self, primal, &lower_all::<B>(tangents))
    }
}
