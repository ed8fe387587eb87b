//! The passes of an operation on tensors of a backend.

use std::fmt::Debug;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::variadic_op::OptionalTensors;

/// A twice differentiable operation with one differentiated result, on f32 tensors of `H`, a backend
/// without autodiff.
pub trait TwiceDifferentiable<H: Backend>: Clone + Debug + Send + Sync + 'static {
    /// The values that the forward pass saves for the derivatives, besides the operands.
    type Saved: Send + Sync + 'static;

    /// The gradients of intermediate values, which `vjp` saves for itself along tangents.
    type IntermediateGrads: Send + Sync + 'static;

    /// The tangent of [`Saved`](Self::Saved), which `jvp` saves for `vjp` along the same tangents.
    type SavedTangent: Send + Sync + 'static;

    /// True if the derivatives read the operands. If not, the operands are not kept in memory.
    const READS_OPERANDS: bool;

    /// The result; with what the derivatives need if `keep` is set.
    fn forward(
        &self,
        operands: &[FloatTensor<H>],
        keep: bool,
    ) -> ForwardOutput<FloatTensor<H>, Self::Saved>;

    /// Vector-Jacobian product: the gradients of the operands, given `grad`, that of the result. Those
    /// that are not `wanted` may be `None`. With the intermediate gradients if `keep` is set.
    ///
    /// `along` tangents it is the tangents of these gradients, given `grad`, the tangent of the gradient of
    /// the result; `None` is zero. Nothing is kept then.
    fn vjp(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        along: Option<TangentTensors<'_, H, Self>>,
        grad: Option<&FloatTensor<H>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<H, Self::IntermediateGrads>;

    /// Jacobian-vector product: the tangent of the result, given those of the operands. A tangent that
    /// is `None` is zero.
    fn jvp(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, Self::SavedTangent);

    /// The value that `jvp` saves, for a caller that does not need the tangent of the result.
    fn saved_tangent(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> Self::SavedTangent {
        self.jvp(primal, tangents).1
    }
}

/// The gradients of the operands, and of intermediate values if they were asked for.
pub type Gradients<H, T> = (OptionalTensors<H>, Option<T>);

/// The results of a forward pass.
pub struct ForwardOutput<V, T> {
    /// The differentiated result.
    pub result: V,
    /// Auxiliary results that are not differentiated: vectors, as many as the operation has.
    pub aux: Vec<V>,
    /// For the derivatives, if it was asked for.
    pub saved: Option<T>,
}

/// The point at which derivatives are taken.
pub struct PrimalTensors<'a, H: Backend, S: TwiceDifferentiable<H>> {
    pub saved: &'a S::Saved,
    /// Empty unless [they are read](TwiceDifferentiable::READS_OPERANDS).
    pub operands: &'a [FloatTensor<H>],
    pub device: &'a H::Device,
}

/// The tangents along which gradients are differentiated.
pub struct TangentTensors<'a, H: Backend, S: TwiceDifferentiable<H>> {
    /// The tangents of the operands, as [`TwiceDifferentiable::jvp`] got them.
    pub tangents: &'a [Option<FloatTensor<H>>],
    /// The value that `jvp` saved.
    pub saved_tangent: &'a S::SavedTangent,
    /// The gradients that `vjp` saved.
    pub intermediate_grads: &'a S::IntermediateGrads,
}
