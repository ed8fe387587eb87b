//! What the CPU bodies of the operations share: vector instructions, the contraction behind every
//! convolution, layouts, and buffers.

pub mod activate;
pub mod activate_vjp;
mod algorithm;
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64")),
    path = "amx_absent.rs"
)]
pub mod amx;
mod amx_convolution;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod buffers;
pub mod contract;
pub mod convolution;
pub mod depthwise;
pub mod epilogue;
pub mod exponential;
pub mod filter;
pub mod gates;
pub mod gelu;
pub mod gemm;
pub mod gram;
pub mod im2col;
pub mod images;
pub mod instruction_set;
pub mod interleave;
pub mod layer_norm;
pub mod layout;
pub mod moments;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64"))]
mod narrow;
pub mod padding_taps;
pub mod planes;
pub mod portable;
pub mod product;
pub mod rank;
pub mod rounding;
pub mod simd;
pub mod slots;
pub mod softmax;
pub mod steps;
pub mod transforms;
pub mod weight_rows;
pub mod windows;
pub mod winograd;
mod winograd_batch;

pub use buffers::release_buffers;

/// The set of vector instructions that the CPU bodies run on here.
pub fn instructions() -> &'static str {
    instruction_set::chosen().name()
}

/// Small integers for unit tests, so that sums do not depend on their order.
#[cfg(test)]
pub fn integers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 101) % 23) as f32 - 11.0).collect()
}
