//! CPU body of the fused stack of blocks: convolution, batch-norm, ReLU and max-pool.
//!
//! Activations are kept in channel tiles (`[n, c / lanes, h, w, lanes]`) with a ring of zeros, so
//! that every convolution and every gradient is one contraction over broadcast scalars and vectors
//! of output channels. Work is cut into a fixed number of slots over the batch, so the results do
//! not depend on the number of threads.

mod backward;
mod forward;
mod jvp;
mod jvp_of_vjp;
mod memory;
mod norm;
mod parameters;
mod per_batch;
mod plan;
mod reduction;
mod shape;
mod slot_run;
#[cfg(test)]
mod tests;

pub use shape::{BlockShape, StackShape};

pub(super) use backward::{IntermediateGrads, backward};
pub(super) use forward::{Pass, Planned, Saved, forward};
pub(super) use jvp::{SavedTangent, jvp};
pub(super) use jvp_of_vjp::jvp_of_vjp;
pub(super) use parameters::Parameters;
#[cfg(feature = "cube")]
pub(super) use shape::Geometry;
