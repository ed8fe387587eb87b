//! ReLU with a slope below zero or a largest value, in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::rectifier::Rectifier;

/// The same as [`leaky_relu`](super::leaky_relu()).
pub fn leaky_relu<B: Backend>(x: Tensor<B, 4>, slope: f64) -> Tensor<B, 4> {
    rectified(x, Rectifier { slope, most: None })
}

/// The same as [`relu6`](super::relu6()).
pub fn relu6<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    rectified(x, Rectifier { slope: 0.0, most: Some(6.0) })
}

/// The values of a rectifier.
pub(crate) fn rectified<B: Backend>(x: Tensor<B, 4>, by: Rectifier) -> Tensor<B, 4> {
    let y = sloped(x.clone(), x.clone(), by.slope);
    match by.most {
        Some(most) => y.mask_fill(x.greater_equal_elem(most), most),
        None => y,
    }
}

/// `values` times the slope of a rectifier at its output or input `at`; linear in the values.
pub(crate) fn gated<B: Backend>(
    at: Tensor<B, 4>,
    values: Tensor<B, 4>,
    by: Rectifier,
) -> Tensor<B, 4> {
    let sloped = sloped(at.clone(), values, by.slope);
    match by.most {
        Some(most) => sloped.mask_fill(at.greater_equal_elem(most), 0.0),
        None => sloped,
    }
}

/// `values` where `at` is positive or NaN, `slope` times as much elsewhere.
fn sloped<B: Backend>(at: Tensor<B, 4>, values: Tensor<B, 4>, slope: f64) -> Tensor<B, 4> {
    let silent = at.lower_equal_elem(0.0);
    match slope {
        0.0 => values.mask_fill(silent, 0.0),
        _ => values.clone().mask_where(silent, values * slope),
    }
}
