//! The average in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The same as [`global_avg_pool`](super::global_avg_pool()), on any backend.
pub fn global_avg_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [n, c, h, w] = x.dims();
    x.reshape([n, c, h * w]).mean_dim(2).reshape([n, c])
}
