//! ReLU with a slope below zero or a largest value.

pub(crate) mod rectifier;
pub mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::layers;

pub use rectifier::Rectifier;

/// `x` where it is positive, `slope * x` elsewhere, in the place of `x` on a host where nothing else has it.
///
/// # Shapes
/// - `x` and output: `[n, c, h, w]`
///
/// # Conventions
/// The slope is from 0 to 1. The gradient at zero is the slope, as in PyTorch (`F.leaky_relu(x, slope)`), and NaN stays NaN.
pub fn leaky_relu<B: Backend>(x: Tensor<B, 4>, slope: f64) -> Tensor<B, 4> {
    assert!((0.0..=1.0).contains(&slope), "a leaky ReLU has a slope from 0 to 1, not {slope}");
    rectified(x, Rectifier { slope, most: None })
}

/// `x` between 0 and 6, in the place of `x` on a host where nothing else has it: the activation of mobile networks.
///
/// # Shapes
/// - `x` and output: `[n, c, h, w]`
///
/// # Conventions
/// The gradient at both bounds is zero, as in PyTorch (`F.relu6(x)`), and NaN stays NaN.
pub fn relu6<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    rectified(x, Rectifier { slope: 0.0, most: Some(6.0) })
}

fn rectified<B: Backend>(x: Tensor<B, 4>, by: Rectifier) -> Tensor<B, 4> {
    let of = x.dtype();
    if x.shape().num_elements() == 0 {
        return x;
    }
    match layers::table::<B>("leaky_relu", of, []) {
        Some((table, taken)) => wrap::<B, 4>((table.leaky)(unwrap(x.cast(taken)), by)).cast(of),
        None => reference::rectified(x, by),
    }
}
