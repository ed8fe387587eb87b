//! The stack in plain Burn operations, each of which can be differentiated any number of times.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;

use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};

/// The same as [`conv_stack`](super::conv_stack()), on any backend.
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    StackOptions { epsilon, lanes }: StackOptions,
) -> StackOutput<B> {
    let running = match statistics {
        Statistics::Batch => vec![None; blocks.len()],
        Statistics::Running(moments) => moments.into_iter().map(Some).collect(),
    };
    let mut output = StackOutput { features: images, moments: Vec::new() };
    for (block, running) in blocks.iter().zip(running) {
        let options = ConvOptions::new([block.stride; 2], [1, 1], [1, 1], lanes);
        let mut y = conv2d(output.features, block.weight.clone(), None, options);
        if let Some(bias) = &block.bias {
            // Not in `conv2d`: on CubeCL backends a broadcast bias there gives wrong values.
            let channels = bias.dims()[0];
            y = y + bias.clone().reshape([1, channels, 1, 1]);
        }
        let (y, moments) = batch_norm(y, block.gamma.clone(), block.beta.clone(), running, epsilon);
        output.moments.extend(moments);
        output.features = if block.pool { max_pool(relu(y)) } else { relu(y) };
    }
    output
}

/// Batch normalisation of `x` `[n, c, h, w]`; with the moments of the batch, detached, where no
/// `running` ones are given.
pub fn batch_norm<B: Backend>(
    x: Tensor<B, 4>,
    gamma: Option<Tensor<B, 1>>,
    beta: Option<Tensor<B, 1>>,
    running: Option<Moments<B>>,
    epsilon: f64,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let channels = x.dims()[1];
    let per_channel = |vector: Tensor<B, 1>| vector.reshape([1, channels, 1, 1]);
    let (mean, variance, moments) = match running {
        Some(moments) => {
            let mean = per_channel(moments.mean.detach());
            (mean, per_channel(moments.variance.detach()), None)
        }
        None => {
            let mean = channel_mean(x.clone());
            let centred = x.clone() - mean.clone();
            let variance = channel_mean(centred.clone() * centred);
            let moments = Moments {
                mean: mean.clone().detach().reshape([channels]),
                variance: variance.clone().detach().reshape([channels]),
            };
            (mean, variance, Some(moments))
        }
    };
    let mut y = (x - mean) / (variance + epsilon).sqrt();
    if let Some(gamma) = gamma {
        y = y * per_channel(gamma);
    }
    if let Some(beta) = beta {
        y = y + per_channel(beta);
    }
    (y, moments)
}

/// Max-pool 2x2 with stride 2 of `x` `[n, c, h, w]`; an odd last row or column is dropped.
///
/// Written with `max_dim`, because Burn's own pooling cannot be differentiated twice.
pub fn max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    let [n, c, h, w] = x.dims();
    let (rows, columns) = (h / 2, w / 2);
    let even = match h % 2 + w % 2 {
        0 => x,
        // On CubeCL backends a split of a sliced odd axis reads wrong elements unless an
        // element-wise operation stands between.
        _ => x.slice([0..n, 0..c, 0..2 * rows, 0..2 * columns]).mul_scalar(1.0),
    };
    let across = even.reshape([n * c * rows * 2, columns, 2]).max_dim(2);
    across.reshape([n * c * rows, 2, columns]).max_dim(1).reshape([n, c, rows, columns])
}

fn channel_mean<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    x.mean_dim(0).mean_dim(2).mean_dim(3)
}
