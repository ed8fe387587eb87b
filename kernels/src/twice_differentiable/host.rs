//! Operations on slices, as operations on tensors of every host backend.

use std::borrow::Cow;
use std::iter;

use burn::tensor::Shape;
use burn::tensor::ops::FloatTensor;

use super::{
    ForwardOutput, HostTwiceDifferentiable, PrimalSlices, PrimalTensors, TangentSlices,
    TangentTensors, TwiceDifferentiable,
};
use crate::host::{HostBackend, elements, write_shape};
use crate::variadic_op::OptionalTensors;

impl<H: HostBackend, S: HostTwiceDifferentiable> TwiceDifferentiable<H> for S {
    type Saved = S::Saved;
    type IntermediateGrads = S::IntermediateGrads;
    type SavedTangent = S::SavedTangent;

    const READS_OPERANDS: bool = S::READS_OPERANDS;

    fn result_shape(&self) -> Shape {
        HostTwiceDifferentiable::result_shape(self)
    }

    fn forward(
        &self,
        operands: &[FloatTensor<H>],
        keep: bool,
    ) -> ForwardOutput<FloatTensor<H>, S::Saved> {
        let device = H::float_device(&operands[0]);
        let ForwardOutput { result, aux, saved } = with_slices::<H, _>(operands, |slices| {
            HostTwiceDifferentiable::forward(self, slices, keep)
        });
        let shape = HostTwiceDifferentiable::result_shape(self);
        let result = write_shape::<H>(result, shape, &device);
        let vector = |of: Vec<f32>| {
            let length = of.len();
            write_shape::<H>(of, [length].into(), &device)
        };
        let aux = aux.into_iter().map(vector).collect();
        ForwardOutput { result, aux, saved }
    }

    fn vjp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, H, S>,
        grad: &FloatTensor<H>,
        wanted: &[bool],
        keep: bool,
    ) -> (OptionalTensors<H>, Option<S::IntermediateGrads>) {
        let (grads, intermediate_grads) = with_slices::<H, _>(operands, |operands| {
            let primal = PrimalSlices { saved, operands };
            HostTwiceDifferentiable::vjp(self, primal, &elements::<H>(grad), wanted, keep)
        });
        (operand_tensors::<H, S>(self, grads, wanted, device), intermediate_grads)
    }

    fn jvp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, H, S>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, S::SavedTangent) {
        let (tangent, saved_tangent) = with_slices::<H, _>(operands, |operands| {
            let primal = PrimalSlices { saved, operands };
            with_optional_slices::<H, _>(tangents, |tangents| {
                HostTwiceDifferentiable::jvp(self, primal, tangents)
            })
        });
        let shape = HostTwiceDifferentiable::result_shape(self);
        (write_shape::<H>(tangent, shape, device), saved_tangent)
    }

    fn jvp_of_vjp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, H, S>,
        TangentTensors { tangents, saved_tangent, intermediate_grads }: TangentTensors<'_, H, S>,
        grad_tangent: Option<&FloatTensor<H>>,
        wanted: &[bool],
    ) -> OptionalTensors<H> {
        let grad_tangent = grad_tangent.map(elements::<H>);
        let found = with_slices::<H, _>(operands, |operands| {
            let primal = PrimalSlices { saved, operands };
            with_optional_slices::<H, _>(tangents, |tangents| {
                let tangent = TangentSlices { tangents, saved_tangent, intermediate_grads };
                let grad_tangent = grad_tangent.as_deref();
                HostTwiceDifferentiable::jvp_of_vjp(self, primal, tangent, grad_tangent, wanted)
            })
        });
        operand_tensors::<H, S>(self, found, wanted, device)
    }
}

/// The wanted values of operands' shapes, as tensors.
fn operand_tensors<B: HostBackend, S: HostTwiceDifferentiable>(
    call: &S,
    values: Vec<Option<Vec<f32>>>,
    wanted: &[bool],
    device: &B::Device,
) -> OptionalTensors<B> {
    // Operands at the end may be constants, for which there is no value.
    let values = values.into_iter().chain(iter::repeat_with(|| None));
    let each = values.zip(wanted).enumerate();
    let tensor = |(index, (values, &wanted)): (usize, (Option<Vec<f32>>, &bool))| {
        let values = values.filter(|_| wanted)?;
        Some(write_shape::<B>(values, call.operand_shape(index), device))
    };
    each.map(tensor).collect()
}

/// Calls `then` with the elements of all tensors.
fn with_slices<B: HostBackend, T>(
    tensors: &[FloatTensor<B>],
    then: impl FnOnce(&[&[f32]]) -> T,
) -> T {
    let all: Vec<Cow<'_, [f32]>> = tensors.iter().map(elements::<B>).collect();
    let slices: Vec<&[f32]> = all.iter().map(|each| &**each).collect();
    then(&slices)
}

/// Calls `then` with the elements of the tensors that are there.
fn with_optional_slices<B: HostBackend, T>(
    tensors: &[Option<FloatTensor<B>>],
    then: impl FnOnce(&[Option<&[f32]>]) -> T,
) -> T {
    let all: Vec<_> = tensors.iter().map(|tensor| tensor.as_ref().map(elements::<B>)).collect();
    let slices: Vec<Option<&[f32]>> = all.iter().map(Option::as_deref).collect();
    then(&slices)
}
