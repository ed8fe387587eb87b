//! The stack in plain Burn operations, each of which can be differentiated any number of times.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use super::block::needed;
use super::ghost::as_lanes;
use super::{ConvBlock, StackOptions, StackOutput, Statistics};
use crate::conv2d::reference::{biased, grouped};
use crate::layers::wide;
use crate::norm_relu::Rectified;
use crate::norm_relu::reference::norm_relu;

/// The same as [`conv_stack`](super::conv_stack()), on any backend.
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
) -> StackOutput<B> {
    let options = needed(options, &statistics);
    if options.ghost_batches > 1 {
        return as_lanes(images, blocks, options, conv_stack);
    }
    let StackOptions { epsilon, lanes, precision, .. } = options;
    let running = match statistics {
        Statistics::Batch => vec![None; blocks.len()],
        Statistics::Running(moments) => moments.into_iter().map(Some).collect(),
    };
    let mut output = StackOutput { features: images, moments: Vec::new() };
    for (left, (block, running)) in (0..blocks.len()).rev().zip(blocks.iter().zip(running)) {
        let how = [block.stride, 1, lanes];
        let convolve = |x, weight| grouped(x, weight, None, how);
        let y = precision.product(output.features, block.weight.clone(), convolve);
        let vectors = [&block.bias, &block.gamma, &block.beta].map(Clone::clone);
        let (y, [bias, gamma, beta]) = match precision.low() {
            None => (y, vectors),
            // The features are f32.
            _ if left == 0 => (y.cast(FloatDType::F32), wide(vectors)),
            _ => (y, wide(vectors)),
        };
        let after = Rectified { pool: block.pool };
        let (features, moments) = norm_relu(biased(y, bias), gamma, beta, running, epsilon, after);
        output.moments.extend(moments);
        output.features = features;
    }
    output
}
