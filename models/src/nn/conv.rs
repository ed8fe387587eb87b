//! Convolutions as pretrained networks have them.

use burn::module::Initializer;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::conv2d;

/// A square convolution without bias that keeps the size up to the stride.
pub(crate) fn conv<B: Backend>(
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    device: &B::Device,
) -> Conv2d<B> {
    conv_config(channels, kernel, stride).init(device)
}

/// Its configuration; drawn as torchvision draws it, normal with a variance of 2 / (outputs x window).
pub(crate) fn conv_config(channels: [usize; 2], kernel: usize, stride: usize) -> Conv2dConfig {
    let side = kernel / 2;
    Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(side, side, side, side))
        .with_bias(false)
        .with_initializer(Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: true })
}

/// A layer of [`conv`] on `x`, by the fused convolution; one with TensorFlow's padding by Burn's.
pub(crate) fn convolve<B: Backend>(layer: &Conv2d<B>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    match layer.padding {
        PaddingConfig2d::Explicit(padding, ..) => {
            debug_assert!(layer.bias.is_none() && layer.groups == 1 && layer.dilation == [1, 1]);
            debug_assert_eq!(layer.stride[0], layer.stride[1], "one stride");
            conv2d(x, layer.weight.val(), None, layer.stride[0], padding)
        }
        _ => layer.forward(x),
    }
}
