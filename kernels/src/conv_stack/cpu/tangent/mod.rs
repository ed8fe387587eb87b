//! The stack along a direction: how fast its output and its gradients change where the images and
//! the parameters move.
//!
//! Every map `a` of the first order has a tangent `a'`, and every rule is differentiated along it: of
//! `y = W * p`, for instance, `y' = W * p' + W' * p`. The largest pixel of a window and the sign that
//! ReLU asks for are taken as they are at the point.
//!
//! Source: Pearlmutter, "Fast exact multiplication by the Hessian", 1994.

mod backward;
mod block_gradient;
mod forward;
mod memory;
mod norm;

pub use backward::backward_along;
pub use forward::{SavedTangent, Tangent, forward_along};

/// Where the stack's inputs move.
#[derive(Clone, Copy, Debug)]
pub struct Direction<'a> {
    /// Of the images `[n, c, h, w]`; none if they stand still.
    pub images: Option<&'a [f32]>,
    /// Of the parameters, laid out as they are.
    pub parameters: &'a [f32],
}
