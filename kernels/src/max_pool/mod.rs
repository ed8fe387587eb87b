//! 2x2 max-pooling.

pub(crate) mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;
pub mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::layers;

/// A map that cannot be pooled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A map without elements.
    #[error("a pool needs images with pixels, found the shape {found:?}")]
    Empty {
        /// Shape of the map.
        found: [usize; 4],
    },
    /// A map smaller than a window.
    #[error("a 2x2 pool would shrink an image of {height}x{width} to nothing")]
    TooSmall {
        /// Height of the map.
        height: usize,
        /// Width of the map.
        width: usize,
    },
}

/// The largest value of every 2x2 window, two pixels apart.
///
/// # Shapes
/// `[n, c, h, w]` to `[n, c, h / 2, w / 2]`: an odd last row or column is dropped.
///
/// # Conventions
/// Equal values pass the gradient to the first, and NaN is the largest of all (on a GPU that is up to
/// its compiler), as in PyTorch
/// (`F.max_pool2d(x, 2)`). The second derivative by `x` is zero.
///
/// # Panics
/// When there is no window, with the text of a [`PoolError`].
pub fn max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    if let Err(error) = check(x.dims()) {
        panic!("{error}");
    }
    let of = x.dtype();
    match layers::table::<B>("max_pool", of, []) {
        Some((table, taken)) => wrap::<B, 4>((table.pool)(unwrap(x.cast(taken)))).cast(of),
        None => reference::max_pool(x),
    }
}

pub(crate) fn check(found: [usize; 4]) -> Result<(), PoolError> {
    let [_, _, height, width] = found;
    match found {
        _ if found.contains(&0) => Err(PoolError::Empty { found }),
        _ if height < 2 || width < 2 => Err(PoolError::TooSmall { height, width }),
        _ => Ok(()),
    }
}
