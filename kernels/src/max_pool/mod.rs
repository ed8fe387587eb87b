//! Max-pooling by windows of 2x2, and by overlapping ones of 3x3.

#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;
pub mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::layers;

/// Windows of a pool, two pixels apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Windows {
    /// 2x2; an odd last row or column is in none.
    Adjacent,
    /// 3x3, the first around the corner pixel, with a ring beyond the edge that is never the largest.
    Overlapping,
}

impl Windows {
    /// Rows and columns of windows over an image of so many rows and columns.
    pub(crate) fn count(self, size: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Adjacent => size.map(|side| side / 2),
            Self::Overlapping => size.map(|side| side.div_ceil(2)),
        }
    }
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
pub fn max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    check(x.dims());
    pool("max_pool", Windows::Adjacent, x, reference::max_pool)
}

/// The largest value of every 3x3 window, two pixels apart, of which the first lies around the corner pixel.
///
/// # Shapes
/// `[n, c, h, w]` to `[n, c, ceil(h / 2), ceil(w / 2)]`.
///
/// # Conventions
/// Ties, NaN and the second derivative are those of [`max_pool`](max_pool()); the PyTorch equivalent is
/// `F.max_pool2d(x, 3, stride=2, padding=1)`.
pub fn overlapping_max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    check_pixels(x.dims());
    pool("overlapping_max_pool", Windows::Overlapping, x, reference::overlapping_max_pool)
}

fn pool<B: Backend>(
    operation: &'static str,
    windows: Windows,
    x: Tensor<B, 4>,
    reference: impl FnOnce(Tensor<B, 4>) -> Tensor<B, 4>,
) -> Tensor<B, 4> {
    let of = x.dtype();
    match layers::table::<B>(operation, of, []) {
        Some((table, taken)) => wrap::<B, 4>((table.pool)(windows, unwrap(x.cast(taken)))).cast(of),
        None => reference(x),
    }
}

pub(crate) fn check(shape: [usize; 4]) {
    check_pixels(shape);
    let [_, _, height, width] = shape;
    let fits = height >= 2 && width >= 2;
    assert!(fits, "a 2x2 pool would shrink an image of {height}x{width} to nothing");
}

pub(crate) fn check_pixels(shape: [usize; 4]) {
    assert!(!shape.contains(&0), "a pool needs images with pixels, found the shape {shape:?}");
}
