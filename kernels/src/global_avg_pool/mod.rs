//! The mean over all pixels.

pub mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::layers;
use crate::max_pool::PoolError;

/// Mean over all pixels of each channel.
///
/// # Shapes
/// `[n, c, h, w]` to `[n, c]`.
///
/// # Conventions
/// The PyTorch equivalent is `x.mean((2, 3))`.
///
/// # Panics
/// When there are no pixels, with the text of a [`PoolError`].
pub fn global_avg_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let found = x.dims();
    if found.contains(&0) {
        panic!("{}", PoolError::Empty { found });
    }
    let of = x.dtype();
    match layers::table::<B>("global_avg_pool", of, []) {
        Some((table, taken)) => wrap::<B, 2>((table.plane_mean)(unwrap(x.cast(taken)))).cast(of),
        None => reference::global_avg_pool(x),
    }
}
