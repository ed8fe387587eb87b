//! The convolution in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module;
use burn::tensor::ops::ConvOptions;

use crate::select::select;

/// The same as [`conv2d`](super::conv2d()), on any backend.
pub fn conv2d<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    bias: Option<Tensor<B, 1>>,
    stride: usize,
    padding: usize,
) -> Tensor<B, 4> {
    grouped(x, weight, bias, [stride, padding, 1])
}

/// The same with groups of channels, each with weights of its own.
pub(crate) fn grouped<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    bias: Option<Tensor<B, 1>>,
    [stride, padding, groups]: [usize; 3],
) -> Tensor<B, 4> {
    let (x, stride) = match (weight.dims(), padding) {
        ([_, _, 1, 1], 0) if stride > 1 => (every(every(x, 2, stride), 3, stride), 1),
        _ => (x, stride),
    };
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], groups);
    biased(module::conv2d(x, weight, None, options), bias)
}

/// A convolution's output with its bias, if there is one.
pub(crate) fn biased<B: Backend>(y: Tensor<B, 4>, bias: Option<Tensor<B, 1>>) -> Tensor<B, 4> {
    match bias {
        // Not in `module::conv2d`: on CubeCL backends a broadcast bias there gives wrong values.
        Some(bias) => {
            let channels = bias.dims()[0];
            y + bias.reshape([1, channels, 1, 1])
        }
        None => y,
    }
}

/// Every `step`th position along `dim`, the only ones that a window of one pixel sees.
///
/// On CubeCL backends the gradient of a 1x1 convolution with stride is wrong; without, it is right.
fn every<B: Backend>(x: Tensor<B, 4>, dim: usize, step: usize) -> Tensor<B, 4> {
    let positions = (0..x.dims()[dim] as i32).step_by(step).collect();
    select(x, dim, positions)
}
