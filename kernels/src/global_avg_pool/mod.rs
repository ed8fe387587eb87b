//! The mean over all pixels.

#[cfg(feature = "cube")]
pub(crate) mod cube;
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
    let [n, c, ..] = x.dims();
    global_avg_pool_lanes(x, 1).reshape([n, c])
}

/// Mean over all pixels of each channel, where the channels of so many lanes are side by side; the means are lane
/// after lane, with no copy on an accelerator.
///
/// # Shapes
/// `[n, lanes * c, h, w]` to `[lanes, n, c]`.
pub fn global_avg_pool_lanes<B: Backend>(x: Tensor<B, 4>, lanes: usize) -> Tensor<B, 3> {
    check_pixels(x.dims());
    let (of, channels) = (x.dtype(), x.dims()[1]);
    assert!(
        lanes > 0 && channels.is_multiple_of(lanes),
        "{channels} channels cannot be shared out among {lanes} lanes"
    );
    match layers::table::<B>("global_avg_pool", of, []) {
        Some((table, taken)) => {
            wrap::<B, 3>((table.plane_mean)(unwrap(x.cast(taken)), lanes)).cast(of)
        }
        None => reference::global_avg_pool_lanes(x, lanes),
    }
}
