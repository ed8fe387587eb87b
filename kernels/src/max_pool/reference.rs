//! Max-pooling in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::{max_pool2d, max_pool2d_with_indices};

/// Max-pool 2x2 with stride 2 of `x` `[n, c, h, w]`; an odd last row or column is dropped.
///
/// Written with `max_dim`, because Burn's own pooling cannot be differentiated twice.
pub fn max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    let [n, c, h, w] = x.dims();
    let (rows, columns) = (h / 2, w / 2);
    let even = match h % 2 + w % 2 {
        0 => x,
        // On CubeCL backends a split of a sliced odd axis reads wrong elements unless an
        // element-wise operation stands between.
        _ => x.slice([0..n, 0..c, 0..2 * rows, 0..2 * columns]).mul_scalar(1.0),
    };
    let across = even.reshape([n * c * rows * 2, columns, 2]).max_dim(2);
    across.reshape([n * c * rows, 2, columns]).max_dim(1).reshape([n, c, rows, columns])
}

/// The same as [`overlapping_max_pool`](super::overlapping_max_pool()), on any backend.
///
/// Burn's own pool cannot be differentiated twice. Here the pool says where the largest values are, and they are
/// gathered from there, whose derivative is a scatter and whose second derivative is a gather again.
pub fn overlapping_max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    if !B::ad_enabled(&x.device()) {
        return max_pool2d(x, [3; 2], [2; 2], [1; 2], [1; 2], false);
    }
    let ([n, c, h, w], constant) = (x.dims(), x.clone().detach());
    let (pooled, places) = max_pool2d_with_indices(constant, [3; 2], [2; 2], [1; 2], [1; 2], false);
    let shape @ [_, _, rows, columns] = pooled.dims();
    let places = places.reshape([n * c, rows * columns]);
    x.reshape([n * c, h * w]).gather(1, places).reshape(shape)
}
