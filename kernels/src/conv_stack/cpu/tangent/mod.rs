//! Forward-mode derivatives of the stack: the tangents of its output and of its gradients, given those
//! of the images and the parameters.
//!
//! Every map `a` has a tangent `a'`, and every rule is differentiated: of `y = W * p`, for instance,
//! `y' = W * p' + W' * p`. The largest pixel of a window and the sign that ReLU reads are those at the
//! primal point.
//!
//! Source: Pearlmutter, "Fast exact multiplication by the Hessian", 1994.

mod backward;
mod block_gradient;
mod forward;
mod norm;

pub use backward::jvp_of_vjp;
pub use forward::{SavedTangent, jvp};
