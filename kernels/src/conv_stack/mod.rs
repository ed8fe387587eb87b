//! The stack of convolution blocks that Conv-4 encoders are made of, as one operation.
//!
//! A block is a 3x3 convolution with padding 1, batch normalisation, ReLU, and a 2x2 max-pool where
//! asked for: `y = pool(relu(gamma * (conv(x) - mean) / sqrt(variance + epsilon) + beta))`.

mod autodiff;
mod block;
pub mod cpu;
mod fused;
pub mod reference;

pub use block::{ConvBlock, Moments, StackError, StackOutput, Statistics};
pub use fused::StackCall;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Runs `images` through the blocks, each taking the output of the one before.
///
/// # Shapes
/// - `images`: `[n, c, h, w]`
/// - features: `[n, c', h', w']`, `c'` the last block's channels; a stride or a pool halves `h` and
///   `w` (a stride rounds up, a pool down).
///
/// # Conventions
/// The variance is the biased one, as in training in PyTorch; its running average there takes the
/// unbiased one, here as in Burn the biased one. Equal values in a pool pass the gradient to the
/// first. Running statistics are constants: no gradient flows into them.
///
/// # Panics
/// When the blocks do not fit each other or the images, with the text of a [`StackError`].
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    epsilon: f64,
) -> StackOutput<B> {
    let shape = match block::check(images.dims(), blocks, &statistics) {
        Ok(shape) => shape,
        Err(error) => panic!("{error}"),
    };
    match crate::door::lookup::<B>() {
        Some(vtable) if fused::serves(&images, blocks, &statistics) => {
            fused::run(vtable, images, blocks, statistics, epsilon, shape)
        }
        _ => reference::conv_stack(images, blocks, statistics, epsilon),
    }
}
