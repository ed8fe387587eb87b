//! Convolutions as pretrained networks have them.

use burn::module::Initializer;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::backend::Backend;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor, module};
use fewshot_kernels::{FusedConvOptions, Route, conv2d, fused_conv2d, route, zero_padded};

use super::{BatchNorm, BnStatistics, relu};

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

/// A layer of [`conv`] on `x`, by the fused convolution; one with TensorFlow's padding or of groups by Burn's.
pub(crate) fn convolve<B: Backend>(layer: &Conv2d<B>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    match layer.padding {
        PaddingConfig2d::Explicit(padding, ..) if layer.groups == 1 => {
            debug_assert!(layer.bias.is_none() && layer.dilation == [1, 1]);
            debug_assert_eq!(layer.stride[0], layer.stride[1], "one stride");
            conv2d(x, layer.weight.val(), None, layer.stride[0], padding)
        }
        PaddingConfig2d::Same => {
            let [_, _, h, w] = x.dims();
            let [[top, bottom], [left, right]] = [(h, 0), (w, 1)]
                .map(|(side, axis)| same_zeros(side, layer.kernel_size[axis], layer.stride[axis]));
            let x = zero_padded(x, [top, left, bottom, right]);
            let options = ConvOptions::new(layer.stride, [0, 0], layer.dilation, layer.groups);
            module::conv2d(x, layer.weight.val(), None, options)
        }
        _ => layer.forward(x),
    }
}

/// A convolution, normalised, plus `add`, with a ReLU where there is one. Windows of one pixel do all in one pass where a host
/// normalises by running averages and records no graph.
pub(crate) fn layer<B: Backend>(
    (conv, norm): (&Conv2d<B>, &BatchNorm<B>),
    x: Tensor<B, 4>,
    statistics: BnStatistics,
    has_relu: bool,
    add: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    let on_host = matches!(route::<B>(), Route::Host(_)) && !B::ad_enabled(&x.device());
    let is_f32 = x.dtype() == DType::F32 && conv.weight.dtype() == DType::F32;
    let by_averages = statistics == BnStatistics::Running;
    if conv.kernel_size == [1, 1] && by_averages && on_host && is_f32 {
        let least = if has_relu { 0.0 } else { f32::NEG_INFINITY };
        return fused(conv, norm, x, [least, f32::INFINITY], add);
    }
    let y = norm.forward(convolve(conv, x), statistics);
    let y = match add {
        Some(add) => y + add,
        None => y,
    };
    if has_relu { relu(y) } else { y }
}

/// The window of a convolution that keeps the size up to the stride, and the bounds of what follows.
pub(crate) fn options<B: Backend>(
    conv: &Conv2d<B>,
    x: &Tensor<B, 4>,
    bounds: [f32; 2],
) -> FusedConvOptions {
    let ([_, _, h, w], [stride, _], [window, _]) = (x.dims(), conv.stride, conv.kernel_size);
    let [[top, bottom], [left, right]] = [h, w].map(|side| same_zeros(side, window, stride));
    FusedConvOptions { stride, padding: [top, left, bottom, right], bounds }
}

/// A convolution, normalised by running averages, plus a map, within bounds.
pub(crate) fn fused<B: Backend>(
    conv: &Conv2d<B>,
    norm: &BatchNorm<B>,
    x: Tensor<B, 4>,
    bounds: [f32; 2],
    add: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    debug_assert!(conv.bias.is_none() && conv.dilation == [1, 1] && conv.groups == 1);
    let options = options(conv, &x, bounds);
    fused_conv2d(x, conv.weight.val(), norm.running_map(), options, add)
}

/// Zeros before and behind a side in TensorFlow's padding, which keeps the size up to the stride: one more behind where they are odd.
pub(crate) fn same_zeros(side: usize, window: usize, stride: usize) -> [usize; 2] {
    let zeros = (side.div_ceil(stride) * stride + window).saturating_sub(side + stride);
    [zeros / 2, zeros - zeros / 2]
}
