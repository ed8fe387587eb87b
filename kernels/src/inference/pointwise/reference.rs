//! The convolution in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::conv2d;

/// The same as [`pointwise_conv2d`](super::pointwise_conv2d()), on any backend.
pub fn pointwise_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    map: [Tensor<B, 1>; 2],
    bounds: [f32; 2],
    add: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    let [scale, shift] = map.map(|of| of.reshape([1, -1, 1, 1]));
    let y = conv2d(x, weight, None, 1, 0) * scale + shift;
    let y = match bounds {
        [f32::NEG_INFINITY, f32::INFINITY] => y,
        [least, most] => y.clamp(least, most),
    };
    match add {
        Some(add) => y + add,
        None => y,
    }
}
