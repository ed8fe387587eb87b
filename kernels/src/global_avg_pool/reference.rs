//! The average in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The same as [`global_avg_pool`](super::global_avg_pool()), on any backend.
pub fn global_avg_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [n, c, h, w] = x.dims();
    x.reshape([n, c, h * w]).mean_dim(2).reshape([n, c])
}

/// The same as [`global_avg_pool_lanes`](super::global_avg_pool_lanes()), on any backend.
pub fn global_avg_pool_lanes<B: Backend>(x: Tensor<B, 4>, lanes: usize) -> Tensor<B, 3> {
    let [n, channels, ..] = x.dims();
    global_avg_pool(x).reshape([n, lanes, channels / lanes]).swap_dims(0, 1)
}

/// The transpose of [`global_avg_pool_lanes`]: `[lanes, n, c]` over planes of the given size, divided by their pixels.
pub fn spread<B: Backend>(u: Tensor<B, 3>, [h, w]: [usize; 2]) -> Tensor<B, 4> {
    let [lanes, n, c] = u.dims();
    let each = (u / (h * w) as f64).swap_dims(0, 1);
    each.reshape([n, lanes * c, 1, 1]).expand([n, lanes * c, h, w])
}
