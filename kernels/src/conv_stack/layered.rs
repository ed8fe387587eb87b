//! The stack made of fused layers, and of Burn's own convolution on an accelerator.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics, reference};
use crate::batch_norm::{NormStatistics, normalise};
use crate::conv2d::conv2d;
use crate::conv2d::reference::{biased, grouped};
use crate::norm_relu::Rectified;

/// The same as [`conv_stack`](super::conv_stack()).
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
) -> StackOutput<B> {
    let convolve = |x, weight, how: [usize; 3]| match how {
        [stride, padding, 1] => conv2d(x, weight, None, stride, padding),
        _ => grouped(x, weight, None, how),
    };
    reference::compose(images, blocks, statistics, options, convolve, finish)
}

/// What comes after a block's convolution.
///
/// A bias only moves the mean that the batch's own normalisation takes away again, so it is not added
/// to the map. Its gradient is zero, and there.
fn finish<B: Backend>(
    y: Tensor<B, 4>,
    [bias, gamma, beta]: [Option<Tensor<B, 1>>; 3],
    running: Option<Moments<B>>,
    epsilon: f64,
    after: Rectified,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let normalise = |y, beta, statistics| {
        normalise("conv_stack", y, [gamma, beta], statistics, epsilon, Some(after))
    };
    match (running, bias) {
        (Some(running), bias) => normalise(biased(y, bias), beta, NormStatistics::Running(running)),
        (None, None) => normalise(y, beta, NormStatistics::Batch),
        (None, Some(bias)) => {
            let nothing = bias.clone() * 0.0;
            let beta = beta.map_or(nothing.clone(), |beta| beta + nothing);
            let (z, moments) = normalise(y, Some(beta), NormStatistics::Batch);
            let moved = |of: Moments<B>| Moments { mean: of.mean + bias.detach(), ..of };
            (z, moments.map(moved))
        }
    }
}
