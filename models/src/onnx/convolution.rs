//! Convolutions, with the batch-norm behind them in their weights.

use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{ConvShape, Graph, Value};
use crate::nn::BatchNorm;
use crate::nn::conv::same_zeros;

/// A convolution without bias.
pub(crate) fn add_convolution<B: Backend>(
    graph: &mut Graph,
    layer: &Conv2d<B>,
    x: &Value,
) -> Value {
    let weight = graph.tensor("weight", layer.weight.val());
    graph.conv(x, &weight, None, explicit(layer))
}

/// A convolution without bias, normalised by running averages.
pub(crate) fn add_normalised<B: Backend>(
    graph: &mut Graph,
    layer: &Conv2d<B>,
    norm: &BatchNorm<B>,
    x: &Value,
) -> Value {
    add_mapped(graph, x, layer.weight.val(), norm.running_map(), explicit(layer))
}

/// The same with TensorFlow's padding of maps of this height and width, and the size of what comes out.
pub(crate) fn add_normalised_same<B: Backend>(
    graph: &mut Graph,
    layer: &Conv2d<B>,
    norm: &BatchNorm<B>,
    (x, size): (&Value, [usize; 2]),
) -> (Value, [usize; 2]) {
    let ([stride, _], [window, _]) = (layer.stride, layer.kernel_size);
    let [[top, bottom], [left, right]] = size.map(|side| same_zeros(side, window, stride));
    let padding = [top, left, bottom, right];
    let shape = ConvShape { window: [window; 2], stride, padding, groups: layer.groups };
    let y = add_mapped(graph, x, layer.weight.val(), norm.running_map(), shape);
    (y, size.map(|side| side.div_ceil(stride)))
}

/// A convolution whose outputs are scaled and shifted by channel.
pub(crate) fn add_mapped<B: Backend>(
    graph: &mut Graph,
    x: &Value,
    weight: Tensor<B, 4>,
    [scale, shift]: [Tensor<B, 1>; 2],
    shape: ConvShape,
) -> Value {
    let weight = graph.tensor("weight", weight * scale.reshape([-1, 1, 1, 1]));
    let bias = graph.tensor("bias", shift);
    graph.conv(x, &weight, Some(&bias), shape)
}

/// The shape of a layer whose padding is given.
fn explicit<B: Backend>(layer: &Conv2d<B>) -> ConvShape {
    let padding = match layer.padding {
        PaddingConfig2d::Explicit(top, left, bottom, right) => [top, left, bottom, right],
        PaddingConfig2d::Valid => [0; 4],
        PaddingConfig2d::Same => unreachable!("of maps whose size is given"),
    };
    let [stride, _] = layer.stride;
    ConvShape { window: layer.kernel_size, stride, padding, groups: layer.groups }
}
