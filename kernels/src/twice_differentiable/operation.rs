//! What an operation implements: its passes on slices of a host, or on tensors of any backend.

use std::fmt::Debug;

use burn::tensor::Shape;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::variadic_op::OptionalTensors;

/// A twice differentiable operation on f32 slices with one differentiated result.
///
/// Every backend of a host then has it as a [`TwiceDifferentiable`] operation on tensors.
pub trait HostTwiceDifferentiable: Clone + Debug + Send + Sync + 'static {
    /// What the forward pass saves for the derivatives, besides the operands.
    type Saved: Send + Sync + 'static;

    /// The gradients of intermediate values, which `vjp` saves for `jvp_of_vjp`.
    type IntermediateGrads: Send + Sync + 'static;

    /// The tangent of [`Saved`](Self::Saved), which `jvp` saves for `jvp_of_vjp`.
    type SavedTangent: Send + Sync + 'static;

    /// Whether the derivatives read the operands. If not, the operands are not kept in memory.
    const READS_OPERANDS: bool;

    /// Shape of the operand with this index.
    fn operand_shape(&self, index: usize) -> Shape;

    /// Shape of the result.
    fn result_shape(&self) -> Shape;

    /// The result; with what the derivatives need if `keep` is set.
    fn forward(&self, operands: &[&[f32]], keep: bool) -> ForwardOutput<Vec<f32>, Self::Saved>;

    /// Vector-Jacobian product: the gradients of the operands, given that of the result. Gradients
    /// that are not `wanted` may be `None`. With the intermediate gradients if `keep` is set.
    fn vjp(
        &self,
        primal: PrimalSlices<'_, Self>,
        grad: &[f32],
        wanted: &[bool],
        keep: bool,
    ) -> (Vec<Option<Vec<f32>>>, Option<Self::IntermediateGrads>);

    /// Jacobian-vector product: the tangent of the result, given those of the operands. A tangent that
    /// is `None` is zero.
    fn jvp(
        &self,
        primal: PrimalSlices<'_, Self>,
        tangents: &[Option<&[f32]>],
    ) -> (Vec<f32>, Self::SavedTangent);

    /// The tangents of the gradients that [`vjp`](Self::vjp) returns, given those of the operands and
    /// `grad_tangent`, that of the gradient of the result; `None` is zero.
    fn jvp_of_vjp(
        &self,
        primal: PrimalSlices<'_, Self>,
        tangent: TangentSlices<'_, Self>,
        grad_tangent: Option<&[f32]>,
        wanted: &[bool],
    ) -> Vec<Option<Vec<f32>>>;
}

/// What a forward pass returns.
pub struct ForwardOutput<V, T> {
    /// The differentiated result.
    pub result: V,
    /// Auxiliary results that are not differentiated: vectors, as many as the operation has.
    pub aux: Vec<V>,
    /// For the derivatives, if it was asked for.
    pub saved: Option<T>,
}

/// The point at which derivatives are taken.
pub struct PrimalSlices<'a, S: HostTwiceDifferentiable> {
    pub saved: &'a S::Saved,
    /// Empty unless [they are read](HostTwiceDifferentiable::READS_OPERANDS).
    pub operands: &'a [&'a [f32]],
}

/// The tangents along which gradients are differentiated.
pub struct TangentSlices<'a, S: HostTwiceDifferentiable> {
    /// The tangents of the operands, as [`HostTwiceDifferentiable::jvp`] got them. Empty for an
    /// operation whose saved tangent has them.
    pub tangents: &'a [Option<&'a [f32]>],
    /// As `jvp` returned it.
    pub saved_tangent: &'a S::SavedTangent,
    /// As `vjp` returned them.
    pub intermediate_grads: &'a S::IntermediateGrads,
}

/// A twice differentiable operation with one differentiated result, on tensors of `H`, a backend
/// without autodiff.
pub trait TwiceDifferentiable<H: Backend>: Clone + Debug + Send + Sync + 'static {
    /// See [`HostTwiceDifferentiable::Saved`].
    type Saved: Send + Sync + 'static;

    /// See [`HostTwiceDifferentiable::IntermediateGrads`].
    type IntermediateGrads: Send + Sync + 'static;

    /// See [`HostTwiceDifferentiable::SavedTangent`].
    type SavedTangent: Send + Sync + 'static;

    /// See [`HostTwiceDifferentiable::READS_OPERANDS`].
    const READS_OPERANDS: bool;

    /// Shape of the result.
    fn result_shape(&self) -> Shape;

    /// See [`HostTwiceDifferentiable::forward`].
    fn forward(
        &self,
        operands: &[FloatTensor<H>],
        keep: bool,
    ) -> ForwardOutput<FloatTensor<H>, Self::Saved>;

    /// See [`HostTwiceDifferentiable::vjp`].
    fn vjp(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        grad: &FloatTensor<H>,
        wanted: &[bool],
        keep: bool,
    ) -> (OptionalTensors<H>, Option<Self::IntermediateGrads>);

    /// See [`HostTwiceDifferentiable::jvp`].
    fn jvp(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, Self::SavedTangent);

    /// See [`HostTwiceDifferentiable::jvp_of_vjp`].
    fn jvp_of_vjp(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        tangent: TangentTensors<'_, H, Self>,
        grad_tangent: Option<&FloatTensor<H>>,
        wanted: &[bool],
    ) -> OptionalTensors<H>;
}

/// The point at which derivatives are taken, in tensors.
pub struct PrimalTensors<'a, H: Backend, S: TwiceDifferentiable<H>> {
    pub saved: &'a S::Saved,
    /// Empty unless [they are read](TwiceDifferentiable::READS_OPERANDS).
    pub operands: &'a [FloatTensor<H>],
    pub device: &'a H::Device,
}

/// The tangents along which gradients are differentiated, in tensors.
pub struct TangentTensors<'a, H: Backend, S: TwiceDifferentiable<H>> {
    /// The tangents of the operands, as [`TwiceDifferentiable::jvp`] got them.
    pub tangents: &'a [Option<FloatTensor<H>>],
    /// As `jvp` returned it.
    pub saved_tangent: &'a S::SavedTangent,
    /// As `vjp` returned them.
    pub intermediate_grads: &'a S::IntermediateGrads,
}
