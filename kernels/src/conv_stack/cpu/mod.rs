//! CPU body of the fused stack of blocks: convolution, batch-norm, ReLU and max-pool.
//!
//! Activations are kept in channel tiles (`[n, c / lanes, h, w, lanes]`) with a ring of zeros, so
//! that every convolution and every gradient is one contraction over broadcast scalars and vectors
//! of output channels. Work is cut into a fixed number of slots over the batch, so the results do
//! not depend on the number of threads.

mod activate;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod backward;
mod block_gradient;
mod body;
mod buffers;
mod contract;
mod convolution;
mod forward;
mod images;
mod layout;
mod moments;
mod norm;
mod parameters;
mod plan;
mod portable;
mod reduction;
mod shape;
mod simd;
mod slots;
mod spread;
#[cfg(test)]
mod tests;
mod transforms;
mod winograd;

pub use backward::{Gradients, backward};
pub use buffers::release_buffers;
pub use forward::{Output, Saved, Statistics, forward};
pub use shape::{BlockShape, StackShape};

/// The set of vector instructions that the stack runs on here.
pub fn instructions() -> &'static str {
    body::fastest().name()
}
