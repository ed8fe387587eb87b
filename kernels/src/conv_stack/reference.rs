//! The stack in plain Burn operations, each of which can be differentiated any number of times.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};
pub use crate::batch_norm::reference::batch_norm;
use crate::conv2d::reference::{biased, grouped};
use crate::layers::wide;
pub use crate::max_pool::reference::max_pool;
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
    let activate = |y, pool| if pool { max_pool(relu(y)) } else { relu(y) };
    let convolve = |x, weight, how| grouped(x, weight, None, how);
    compose(images, blocks, statistics, options, convolve, batch_norm, activate)
}

/// The stack made of a convolution with stride, padding and groups, of a normalisation, and of a ReLU
/// with a pool where asked for.
pub(super) fn compose<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    StackOptions { epsilon, lanes, precision }: StackOptions,
    convolve: impl Fn(Map<B>, Map<B>, [usize; 3]) -> Map<B>,
    normalise: impl Fn(Map<B>, Vector<B>, Vector<B>, Option<Moments<B>>, f64) -> Normalised<B>,
    activate: impl Fn(Map<B>, bool) -> Map<B>,
) -> StackOutput<B> {
    let running = match statistics {
        Statistics::Batch => vec![None; blocks.len()],
        Statistics::Running(moments) => moments.into_iter().map(Some).collect(),
    };
    let mut output = StackOutput { features: images, moments: Vec::new() };
    for (block, running) in blocks.iter().zip(running) {
        let vectors = [&block.bias, &block.gamma, &block.beta].map(Clone::clone);
        let [bias, gamma, beta] = match precision {
            Precision::F32 => vectors,
            _ => wide(vectors),
        };
        let convolve = |x, weight| convolve(x, weight, [block.stride, 1, lanes]);
        let y = precision.product(output.features, block.weight.clone(), convolve);
        let y = biased(y, bias);
        let (y, moments) = normalise(y, gamma, beta, running, epsilon);
        output.moments.extend(moments);
        output.features = activate(y, block.pool);
    }
    output
}
