//! The stack made of fused layers, and of Burn's own convolution on an accelerator.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use super::{ConvBlock, StackOptions, StackOutput, Statistics, reference};
use crate::batch_norm::{NormStatistics, batch_norm};
use crate::conv2d::conv2d;
use crate::conv2d::reference::grouped;
use crate::max_pool::max_pool;

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
    let normalise = |y, gamma, beta, running: Option<_>, epsilon| {
        let statistics = running.map_or(NormStatistics::Batch, NormStatistics::Running);
        batch_norm(y, gamma, beta, statistics, epsilon)
    };
    // The largest of what is rectified is what the largest is rectified to, and there are four times
    // fewer of those.
    let activate = |y, pool| if pool { relu(max_pool(y)) } else { relu(y) };
    reference::compose(images, blocks, statistics, options, convolve, normalise, activate)
}
