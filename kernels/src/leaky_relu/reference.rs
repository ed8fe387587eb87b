//! Leaky ReLU in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The same as [`leaky_relu`](super::leaky_relu()).
pub fn leaky_relu<B: Backend>(x: Tensor<B, 4>, slope: f64) -> Tensor<B, 4> {
    by_sign(x.clone(), x, slope)
}

/// `values` where `by` is positive or NaN, `slope` times as much elsewhere.
pub fn by_sign<B: Backend>(by: Tensor<B, 4>, values: Tensor<B, 4>, slope: f64) -> Tensor<B, 4> {
    let silent = by.lower_equal_elem(0.0);
    values.clone().mask_where(silent, values * slope)
}
