//! What an operation implements: its passes on tensors of a backend.

use std::fmt::Debug;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::variadic_op::OptionalTensors;

/// A twice differentiable operation with one differentiated result, on f32 tensors of `H`, a backend
/// without autodiff.
pub trait TwiceDifferentiable<H: Backend>: Clone + Debug + Send + Sync + 'static {
    /// What the forward pass saves for the derivatives, besides the operands.
    type Saved: Send + Sync + 'static;

    /// The gradients of intermediate values, which `vjp` saves for itself along tangents.
    type IntermediateGrads: Send + Sync + 'static;

    /// The tangent of [`Saved`](Self::Saved), which `jvp` saves for `vjp` along the same tangents.
    type SavedTangent: Send + Sync + 'static;

    /// Whether the derivatives read the operands. If not, the operands are not kept in memory.
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
        wanted: &[bool],
        keep: bool,
    ) -> Gradients<H, Self::IntermediateGrads>;

    /// Jacobian-vector product: the tangent of the result, given those of the operands. A tangent that
    /// is `None` is zero.
    fn jvp(
        &self,
        primal: PrimalTensors<'_, H, Self>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, Self::SavedTangent);

    /// What `jvp` saves, where nobody wants the tangent of the result.
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
    /// As `jvp` returned it.
    pub saved_tangent: &'a S::SavedTangent,
    /// As `vjp` returned them.
    pub intermediate_grads: &'a S::IntermediateGrads,
}
