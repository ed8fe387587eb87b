//! 2x2 max-pooling.

#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;
pub mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::layers;

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
    let of = x.dtype();
    match layers::table::<B>("max_pool", of, []) {
        Some((table, taken)) => wrap::<B, 4>((table.pool)(unwrap(x.cast(taken)))).cast(of),
        None => reference::max_pool(x),
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
