//! The power in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::{unwrap, wrap};

/// See [`inverse_power`](crate::inverse_power()).
pub fn inverse_power<B: Backend>(
    x: FloatTensor<B>,
    mean: Option<FloatTensor<B>>,
    tau: f64,
) -> [FloatTensor<B>; 2] {
    let x: Tensor<B, 2> = wrap(x);
    let now = (x.clone() * x.clone()).sum() / x.dims()[0] as f64;
    let mean = match mean.map(wrap) {
        Some(mean) => mean.clone() + (now.clone() - mean) / tau,
        None => now.clone(),
    };
    let power: Tensor<B, 1> = mean.clone().max_pair(now);
    let none = power.clone().lower_equal_elem(f32::MIN_POSITIVE);
    let inverse = power.mask_fill(none.clone(), 1.0).recip().mask_fill(none, 0.0);
    [unwrap(inverse), unwrap(mean)]
}
