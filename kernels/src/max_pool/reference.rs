//! Max-pooling in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

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
