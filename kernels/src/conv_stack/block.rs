use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::cpu::{BlockShape, StackShape};
use crate::precision::Precision;

/// One block: the tensors of its layers.
#[derive(Clone, Debug)]
pub struct ConvBlock<B: Backend> {
    /// Convolution weight, `[c_out, c_in, 3, 3]`.
    pub weight: Tensor<B, 4>,
    /// Convolution bias, `[c_out]`; zero where absent.
    pub bias: Option<Tensor<B, 1>>,
    /// Gain of the normalisation, `[c_out]`; one where absent.
    pub gamma: Option<Tensor<B, 1>>,
    /// Shift of the normalisation, `[c_out]`; zero where absent.
    pub beta: Option<Tensor<B, 1>>,
    /// Stride of the convolution, 1 or 2.
    pub stride: usize,
    /// True if a 2x2 max-pool with stride 2 ends the block.
    pub pool: bool,
}

impl<B: Backend> ConvBlock<B> {
    /// Bias, gamma and beta, with their names.
    pub(crate) fn vectors(&self) -> [(&'static str, Option<&Tensor<B, 1>>); 3] {
        let Self { bias, gamma, beta, .. } = self;
        [("bias", bias.as_ref()), ("gamma", gamma.as_ref()), ("beta", beta.as_ref())]
    }
}

/// Mean and biased variance of one block's convolution output, each `[c_out]`, of ghost batches
/// `[ghost_batches * c_out]`, batch after batch.
#[derive(Clone, Debug)]
pub struct Moments<B: Backend> {
    /// Mean of each channel.
    pub mean: Tensor<B, 1>,
    /// Biased variance of each channel.
    pub variance: Tensor<B, 1>,
}

/// The moments that the blocks normalise with.
#[derive(Clone, Debug)]
pub enum Statistics<B: Backend> {
    /// The moments of the batch at hand.
    Batch,
    /// Given moments, one pair a block.
    Running(Vec<Moments<B>>),
}

/// The result of [`conv_stack`](super::conv_stack).
#[derive(Clone, Debug)]
pub struct StackOutput<B: Backend> {
    /// Output of the last block, `[n, c', h', w']`.
    pub features: Tensor<B, 4>,
    /// The batch moments of every block, detached; empty under [`Statistics::Running`].
    pub moments: Vec<Moments<B>>,
}

/// Settings of a stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StackOptions {
    /// Added to the variance; 1e-5 in PyTorch and here.
    pub epsilon: f64,
    /// Stacks side by side in the channels, one for each of so many tasks. The images are
    /// `[n, lanes * c, h, w]`, and all tensors of a block have `lanes` times as many values along
    /// dimension 0, lane after lane.
    pub lanes: usize,
    /// Batches of equal size that the images are, one after the other, each normalised by its own
    /// moments: ghost batch normalisation (Hoffer et al., NeurIPS 2017). Given moments are those of
    /// all. More than one have one lane.
    pub ghost_batches: usize,
    /// The type that the convolutions compute in; statistics, and all after the convolutions, are f32.
    pub precision: Precision,
}

impl Default for StackOptions {
    fn default() -> Self {
        Self { epsilon: 1e-5, lanes: 1, ghost_batches: 1, precision: Precision::F32 }
    }
}

/// The options, without ghost batches where moments are given.
pub fn needed<B: Backend>(options: StackOptions, statistics: &Statistics<B>) -> StackOptions {
    match statistics {
        Statistics::Batch => options,
        Statistics::Running(_) => StackOptions { ghost_batches: 1, ..options },
    }
}

/// The shape of one lane of the stack.
///
/// # Panics
/// With what does not fit first.
pub fn check<B: Backend>(
    [n, c, h, w]: [usize; 4],
    blocks: &[ConvBlock<B>],
    statistics: &Statistics<B>,
    StackOptions { lanes, ghost_batches, .. }: StackOptions,
) -> StackShape {
    assert!(!blocks.is_empty(), "a convolution stack needs at least one block");
    assert!(n > 0, "a convolution stack needs at least one image");
    assert!(
        ghost_batches > 0 && n.is_multiple_of(ghost_batches),
        "{n} images are not {ghost_batches} batches of equal size"
    );
    assert!(
        lanes == 1 || ghost_batches == 1,
        "lanes have one batch each, found {lanes} lanes and {ghost_batches} batches"
    );
    let c = share(|| "the images".into(), c, lanes);
    let (mut channels, mut side) = (c, [h, w]);
    for (index, block) in blocks.iter().enumerate() {
        side = check_block(index, block, channels, side);
        channels = share(|| format!("block {index}"), block.weight.dims()[0], lanes);
    }
    if let Statistics::Running(moments) = statistics {
        let (count, pairs) = (blocks.len(), moments.len());
        assert!(
            pairs == count,
            "{count} blocks need as many pairs of running moments, found {pairs}"
        );
        for (index, (block, moments)) in blocks.iter().zip(moments).enumerate() {
            let [out, ..] = block.weight.dims();
            check_vector(index, "running mean", out, &moments.mean);
            check_vector(index, "running variance", out, &moments.variance);
        }
    }
    let block = |block: &ConvBlock<B>| {
        let channels_out = block.weight.dims()[0] / lanes;
        BlockShape { channels_out, stride: block.stride, pool: block.pool }
    };
    StackShape { n, c, h, w, blocks: blocks.iter().map(block).collect() }
}

/// Channels of one lane.
fn share(name: impl Fn() -> String, channels: usize, lanes: usize) -> usize {
    let shares = lanes > 0 && channels.is_multiple_of(lanes);
    assert!(shares, "{channels} channels of {} cannot be shared out among {lanes} lanes", name());
    channels / lanes
}

/// Height and width of the block's output.
fn check_block<B: Backend>(
    index: usize,
    block: &ConvBlock<B>,
    channels: usize,
    [height, width]: [usize; 2],
) -> [usize; 2] {
    let weight = block.weight.dims();
    let [out, ..] = weight;
    assert!(
        weight == [out, channels, 3, 3] && out > 0 && channels > 0,
        "block {index} needs a weight [c_out, {channels}, 3, 3], found {weight:?}"
    );
    for (name, vector) in block.vectors() {
        if let Some(vector) = vector {
            check_vector(index, name, out, vector);
        }
    }
    let stride = block.stride;
    assert!(matches!(stride, 1 | 2), "block {index} has stride {stride}, only 1 and 2 are served");
    let [height, width] = [height.div_ceil(stride), width.div_ceil(stride)];
    let side = if block.pool { 2 } else { 1 };
    assert!(
        height >= side && width >= side,
        "block {index} would shrink an image of {height}x{width} to nothing"
    );
    [height / side, width / side]
}

fn check_vector<B: Backend>(block: usize, name: &str, channels: usize, vector: &Tensor<B, 1>) {
    let [values] = vector.dims();
    assert!(values == channels, "block {block} needs {channels} values of {name}, found {values}");
}
