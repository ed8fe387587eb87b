//! The mean over all pixels.

pub mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::layers;
use crate::max_pool::check_pixels;

/// Mean over all pixels of each channel.
///
/// # Shapes
/// `[n, c, h, w]` to `[n, c]`.
///
/// # Conventions
/// The PyTorch equivalent is `x.mean((2, 3))`.
pub fn global_avg_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    check_pixels(x.dims());
    let of = x.dtype();
    match layers::table::<B>("global_avg_pool", of, []) {
        Some((table, taken)) => wrap::<B, 2>((table.plane_mean)(unwrap(x.cast(taken)))).cast(of),
        None => reference::global_avg_pool(x),
    }
}
