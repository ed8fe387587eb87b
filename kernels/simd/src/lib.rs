//! Loops over slices of `f32` in vector instructions: products, convolutions, normalisation, softmax and the steps of
//! optimizers, without tensors.
//!
//! Every loop is written once, generic over a set of vector instructions, and compiled for each:
//! [`bodies`](instruction_set::bodies) lists the sets of this processor, and an
//! [`InstructionSet`](instruction_set::InstructionSet) has all loops as methods. Beside them stand layouts, and
//! [`buffers`] that are kept from one call to the next, and a [`pen`] that draws characters.
//!
//! Builds with debug assertions write NaN into fresh memory and watch the end of every buffer, and they list a body
//! with the wide tiles of AVX-512 on every processor.

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
pub mod depthwise_maps;
pub mod depthwise_tile;
pub mod epilogue;
pub mod exponential;
pub mod filter;
pub mod gates;
pub mod gelu;
pub mod gemm;
pub mod im2col;
pub mod images;
pub mod instruction_set;
pub mod interleave;
mod last_columns;
pub mod layer_norm;
pub mod layout;
pub mod moments;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64"))]
mod narrow;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod overlapping_windows;
pub mod padding_taps;
pub mod pen;
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

/// Small integers for tests, so that sums do not depend on their order.
#[doc(hidden)]
pub fn integers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 101) % 23) as f32 - 11.0).collect()
}
