//! Ghost batches where the body has none: a lane for each, with the same parameters.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{ConvBlock, StackOptions, StackOutput, Statistics};
use crate::host::{unwrap, wrap};
use crate::tiling::tiled_all;

/// The result of `run` on ghost batches as lanes, in the shapes that ghost batches have.
pub(super) fn as_lanes<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    options: StackOptions,
    run: impl FnOnce(Tensor<B, 4>, &[ConvBlock<B>], Statistics<B>, StackOptions) -> StackOutput<B>,
) -> StackOutput<B> {
    let batches = options.ghost_batches;
    assert_eq!(options.lanes, 1, "lanes have one batch each");
    let [all, c, h, w] = images.dims();
    let n = all / batches;
    let images = images.reshape([batches, n, c, h * w]).swap_dims(0, 1);
    let (images, blocks) = (images.reshape([n, batches * c, h, w]), tiled(blocks, batches));
    let options = StackOptions { lanes: batches, ghost_batches: 1, ..options };
    let StackOutput { features, moments } = run(images, &blocks, Statistics::Batch, options);
    let [_, channels, h, w] = features.dims();
    let c = channels / batches;
    let features = features.reshape([n, batches, c, h * w]).swap_dims(0, 1);
    StackOutput { features: features.reshape([batches * n, c, h, w]), moments }
}

/// The same blocks for so many lanes.
fn tiled<B: Backend>(blocks: &[ConvBlock<B>], lanes: usize) -> Vec<ConvBlock<B>> {
    let flat = |weight: &Tensor<B, 4>| weight.clone().flatten(0, 3);
    let tensors = blocks.iter().flat_map(|block| {
        let vectors = block.vectors().map(|(_, vector)| vector.cloned());
        [Some(flat(&block.weight))].into_iter().chain(vectors).flatten()
    });
    let tiled = tiled_all::<B>(tensors.map(unwrap).collect(), lanes);
    let mut tiled = tiled.into_iter().map(wrap::<B, 1>);
    let mut next = || tiled.next().expect("as many as there were");
    let block = |block: &ConvBlock<B>| {
        let [out, i, height, width] = block.weight.dims();
        ConvBlock {
            weight: next().reshape([lanes * out, i, height, width]),
            bias: block.bias.as_ref().map(|_| next()),
            gamma: block.gamma.as_ref().map(|_| next()),
            beta: block.beta.as_ref().map(|_| next()),
            ..*block
        }
    };
    blocks.iter().map(block).collect()
}
