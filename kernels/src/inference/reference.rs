//! The layers in plain Burn operations, on any backend.

use std::f64::consts::FRAC_1_SQRT_2;

use burn::tensor::Tensor;
use burn::tensor::activation::{sigmoid, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module;
use burn::tensor::ops::ConvOptions;

use super::FusedConvOptions;
use super::fused_linear::{Activation, LinearEpilogue};
use crate::{conv2d, linear, product, zero_padded};

/// See [`attention`](crate::attention()).
pub fn attention<B: Backend>(qkv: Tensor<B, 3>, heads: usize) -> Tensor<B, 3> {
    let [n, tokens, all] = qkv.dims();
    let each = all / (3 * heads);
    let qkv = qkv.reshape([n, tokens, 3 * heads, each]).swap_dims(1, 2);
    let part = |index| qkv.clone().narrow(1, index * heads, heads);
    let [q, k, v] = [part(0), part(1), part(2)];
    let scores = product(q * (each as f64).powf(-0.5), k.swap_dims(2, 3));
    product(softmax(scores, 3), v).swap_dims(1, 2).reshape([n, tokens, heads * each])
}

/// See [`depthwise_conv2d`](crate::depthwise_conv2d()).
pub fn depthwise_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    filters: Tensor<B, 4>,
    map: [Tensor<B, 1>; 2],
    options: FusedConvOptions,
) -> Tensor<B, 4> {
    let groups = x.dims()[1];
    completed(convolved(x, filters, groups, options), map, None, options.bounds)
}

/// See [`fused_conv2d`](crate::fused_conv2d()).
pub fn fused_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    map: [Tensor<B, 1>; 2],
    options: FusedConvOptions,
    add: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    let y = match weight.dims()[3] {
        1 => conv2d(x, weight, None, options.stride, 0),
        _ => convolved(x, weight, 1, options),
    };
    completed(y, map, add, options.bounds)
}

/// Burn's own convolution, after zeros where there are not as many on opposite sides.
pub(crate) fn convolved<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    groups: usize,
    FusedConvOptions { stride, padding: [top, left, bottom, right], .. }: FusedConvOptions,
) -> Tensor<B, 4> {
    let (x, around) = match [top, left] == [bottom, right] {
        true => (x, [top, left]),
        false => (zero_padded(x, [top, left, bottom, right]), [0, 0]),
    };
    let options = ConvOptions::new([stride, stride], around, [1, 1], groups);
    module::conv2d(x, weight, None, options)
}

/// `y` times `scale` plus `shift` by channel, within bounds.
fn completed<B: Backend>(
    y: Tensor<B, 4>,
    map: [Tensor<B, 1>; 2],
    add: Option<Tensor<B, 4>>,
    bounds: [f32; 2],
) -> Tensor<B, 4> {
    let [scale, shift] = map.map(|of| of.reshape([1, -1, 1, 1]));
    let y = y * scale + shift;
    let y = match add {
        Some(add) => y + add,
        None => y,
    };
    match bounds {
        [f32::NEG_INFINITY, f32::INFINITY] => y,
        [least, most] => y.clamp(least, most),
    }
}

/// See [`fused_linear`](crate::fused_linear()).
pub fn fused_linear<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    epilogue: LinearEpilogue<B>,
) -> Tensor<B, 2> {
    let y = linear(x, weight, Some(bias));
    match epilogue {
        LinearEpilogue::Activation(Activation::Identity) => y,
        LinearEpilogue::Activation(Activation::Gelu) => gelu(y),
        LinearEpilogue::Activation(Activation::QuickGelu) => y.clone() * sigmoid(y * 1.702),
        LinearEpilogue::Residual { scale: Some(scale), add } => y * scale.unsqueeze() + add,
        LinearEpilogue::Residual { scale: None, add } => y + add,
    }
}

/// `x` times the normal distribution's share below `x`. The derivative of Burn's own is the approximation's by a hyperbolic
/// tangent on most backends, and under two levels of autodiff on all.
fn gelu<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let share = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * share
}

/// See [`layer_norm`](crate::layer_norm()).
pub fn layer_norm<B: Backend>(
    x: Tensor<B, 2>,
    map: [Tensor<B, 1>; 2],
    epsilon: f64,
) -> Tensor<B, 2> {
    if x.dims().contains(&0) {
        return x;
    }
    let [gamma, beta] = map.map(|of| of.unsqueeze());
    let centred = x.clone() - x.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred / (variance + epsilon).sqrt() * gamma + beta
}
