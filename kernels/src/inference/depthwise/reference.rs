//! The convolution in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::conv2d;
use burn::tensor::ops::{ConvOptions, PadMode};

use super::DepthwiseOptions;

/// The same as [`depthwise_conv2d`](super::depthwise_conv2d()), on any backend.
pub fn depthwise_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    filters: Tensor<B, 4>,
    map: [Tensor<B, 1>; 2],
    DepthwiseOptions { stride, padding: [top, left, bottom, right], bounds }: DepthwiseOptions,
) -> Tensor<B, 4> {
    let channels = x.dims()[1];
    let x = match [top, left] == [bottom, right] {
        true => x,
        false => x.pad((left, right, top, bottom), PadMode::Constant(0.0)),
    };
    let around = if [top, left] == [bottom, right] { [top, left] } else { [0, 0] };
    let options = ConvOptions::new([stride, stride], around, [1, 1], channels);
    let [scale, shift] = map.map(|of| of.reshape([1, channels, 1, 1]));
    (conv2d(x, filters, None, options) * scale + shift).clamp(bounds[0], bounds[1])
}
