//! The convolution in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module;
use burn::tensor::ops::ConvOptions;

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
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], groups);
    let y = module::conv2d(x, weight, None, options);
    match bias {
        // Not in `module::conv2d`: on CubeCL backends a broadcast bias there gives wrong values.
        Some(bias) => {
            let channels = bias.dims()[0];
            y + bias.reshape([1, channels, 1, 1])
        }
        None => y,
    }
}
