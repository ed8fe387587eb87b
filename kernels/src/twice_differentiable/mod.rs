//! Operations that can be differentiated twice, with fused derivatives.
//!
//! An operation `f` with operands `x` and one differentiated result has three passes, named as in JAX:
//!
//! | pass | returns |
//! |---|---|
//! | `forward` | `f(x)` |
//! | `vjp` | the gradients of the operands, `G(x, g) = J^T g`, given the gradient `g` of the result |
//! | `jvp` | the tangent of the result, `J u`, given tangents `u` of the operands |
//!
//! The `vjp` along tangents of `x` and `g` returns the tangent of `G`: a Hessian-vector product.
//!
//! Under one level of autodiff the backward pass is `vjp`. Under two levels, `vjp` is an operation on
//! the graph of its own. Its backward pass gets a cotangent `u` of `G`; since second derivatives are
//! symmetric, the gradient of `<u, G>` by `g` is the `jvp` along `u`, and by `x` the `vjp` along
//! `u` (Pearlmutter, "Fast exact multiplication by the Hessian", 1994).
//!
//! Where the loss is not linear in the result, `g` depends on the result, whose own gradient comes
//! later in the same backward pass. The `vjp` along `u` is therefore deferred to the backward pass of
//! `f`, which computes both terms of the gradient of `x` in one pass.

mod backend;
#[cfg(feature = "fusion")]
mod fusion;
mod host;
#[cfg(all(test, any(feature = "wgpu", feature = "cuda"), feature = "flex"))]
pub mod on_device;
mod operation;

pub use backend::{InnermostBackend, Twice};
pub use host::operand_tensors;
pub use operation::{ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable};
