//! The stack in plain Burn operations, each of which can be differentiated any number of times.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use super::{ConvBlock, StackOptions, StackOutput, Statistics};
pub use crate::batch_norm::reference::batch_norm;
use crate::conv2d::reference::grouped;
pub use crate::max_pool::reference::max_pool;

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
        let (weight, bias) = (block.weight.clone(), block.bias.clone());
        let y = grouped(output.features, weight, bias, [block.stride, 1, lanes]);
        let (y, moments) = batch_norm(y, block.gamma.clone(), block.beta.clone(), running, epsilon);
        output.moments.extend(moments);
        output.features = if block.pool { max_pool(relu(y)) } else { relu(y) };
    }
    output
}
