//! The mean over all pixels.

pub(crate) mod autodiff;
pub(crate) mod host;
pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use crate::door;
use crate::host::{unwrap, wrap};
use crate::layers::{LayerTable, through_f32};
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
    if let Some(low) = through_f32::<B>(x.dtype(), []) {
        return global_avg_pool(x.cast(FloatDType::F32)).cast(low);
    }
    match door::f32_table::<LayerTable<B>>("global_avg_pool", [x.dtype()]) {
        Some(table) => wrap((table.plane_mean)(unwrap(x))),
        None => reference::global_avg_pool(x),
    }
}
