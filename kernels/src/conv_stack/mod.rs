//! The stack of convolution blocks that Conv-4 encoders are made of, as one operation.
//!
//! A block is a 3x3 convolution with padding 1, batch normalisation, ReLU, and a 2x2 max-pool where
//! asked for: `y = pool(relu(gamma * (conv(x) - mean) / sqrt(variance + epsilon) + beta))`.

mod block;
pub mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::assign_op_pattern)]
mod cube;
mod fused;
mod ghost;
mod lanes;
pub mod reference;

pub use block::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};
pub use fused::StackCall;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::registry;
use crate::twice_differentiable::Twice;

/// Runs `images` through the blocks, each taking the output of the one before.
///
/// # Shapes
/// - `images`: `[n, c, h, w]`
/// - features: `[n, c', h', w']`, `c'` the last block's channels; a stride or a pool halves `h` and
///   `w` (a stride rounds up, a pool down).
///
/// With [`lanes`](StackOptions::lanes) for stacked tasks, channels are `lanes` times as many
/// everywhere but in dimension 1 of the weights, as in a grouped convolution. With
/// [`ghost_batches`](StackOptions::ghost_batches), batches follow each other along `n`.
///
/// # Conventions
/// The variance is the biased one, as in training in PyTorch; its running average there takes the
/// unbiased one, here as in Burn the biased one. Equal values in a pool pass the gradient to the
/// first. Running statistics are constants: no gradient flows into them. What is not finite reaches
/// every feature that it reaches in the reference, but a weight need not reach those where it meets
/// the padding alone; under running statistics, a fused body may spread it to the rest of a 4x4 tile of
/// pixels as NaN.
///
/// Images of f16 or bf16 are taken through fused bodies in f32 on a host, and the features rounded to
/// their type; an accelerator has maps of their type. The moments are f32.
///
/// Under a low [`precision`](StackOptions::precision) convolutions are its
/// [products](crate::Precision::product), and moments, normalisation, ReLU and pool are computed in f32; the
/// features are f32, whatever the images are. A fused body on a host rounds on the way; an accelerator
/// has maps of the low type between the blocks, which tensor cores multiply, with sums in f32. Under
/// [`Tf32`](crate::Precision::Tf32) all is f32 but for what they multiply.
///
/// Where its gradients are differentiated, they and the features go back in one backward pass, not in
/// one each.
///
/// # Panics
/// When the blocks do not fit each other or the images.
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
) -> StackOutput<B> {
    let shape = block::check(images.dims(), blocks, &statistics, options);
    let options = block::needed(options, &statistics);
    let body = registry::body::<B, Twice<StackCall>>();
    match body.filter(|_| fused::takes(&images, blocks, &statistics)) {
        Some(_) if options.ghost_batches > 1 && !registry::on_host::<B>() => {
            ghost::as_lanes(images, blocks, options, conv_stack)
        }
        Some(body) => fused::run(body, images, blocks, statistics, options, shape),
        None => reference::conv_stack(images, blocks, statistics, options),
    }
}
