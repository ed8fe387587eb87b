//! The stack in plain Burn operations, each of which can be differentiated any number of times.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};
use crate::conv2d::reference::{biased, grouped};
use crate::layers::wide;
use crate::norm_relu::Rectified;
use crate::norm_relu::reference::norm_relu;
use crate::precision::Precision;

type Map<B> = Tensor<B, 4>;
type Vector<B> = Option<Tensor<B, 1>>;
type Normalised<B> = (Map<B>, Option<Moments<B>>);

/// The same as [`conv_stack`](super::conv_stack()), on any backend.
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
) -> StackOutput<B> {
    let convolve = |x, weight, how| {
        options.precision.product(x, weight, |x, weight| grouped(x, weight, None, how))
    };
    let finish = |y, [bias, gamma, beta]: [_; 3], running, epsilon, after| {
        norm_relu(biased(y, bias), gamma, beta, running, epsilon, after)
    };
    compose(images, blocks, statistics, options, convolve, finish)
}

/// The stack made of a convolution with stride, padding and groups, in the precision that is asked
/// for, and of what a block is finished by: given bias, gamma and beta, a normalisation and what comes
/// after it.
pub(super) fn compose<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    StackOptions { epsilon, lanes, precision }: StackOptions,
    convolve: impl Fn(Map<B>, Map<B>, [usize; 3]) -> Map<B>,
    finish: impl Fn(Map<B>, [Vector<B>; 3], Option<Moments<B>>, f64, Rectified) -> Normalised<B>,
) -> StackOutput<B> {
    let running = match statistics {
        Statistics::Batch => vec![None; blocks.len()],
        Statistics::Running(moments) => moments.into_iter().map(Some).collect(),
    };
    let mut output = StackOutput { features: images, moments: Vec::new() };
    for (left, (block, running)) in (0..blocks.len()).rev().zip(blocks.iter().zip(running)) {
        let vectors = [&block.bias, &block.gamma, &block.beta].map(Clone::clone);
        let y = convolve(output.features, block.weight.clone(), [block.stride, 1, lanes]);
        let (y, vectors) = match precision {
            Precision::F32 => (y, vectors),
            // The features are f32.
            _ if left == 0 => (y.cast(FloatDType::F32), wide(vectors)),
            _ => (y, wide(vectors)),
        };
        let after = Rectified { pool: block.pool };
        let (features, moments) = finish(y, vectors, running, epsilon, after);
        output.moments.extend(moments);
        output.features = features;
    }
    output
}
