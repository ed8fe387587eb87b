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
    /// Whether a 2x2 max-pool with stride 2 ends the block.
    pub pool: bool,
}

impl<B: Backend> ConvBlock<B> {
    /// Bias, gamma and beta, with their names.
    pub(crate) fn vectors(&self) -> [(&'static str, Option<&Tensor<B, 1>>); 3] {
        let Self { bias, gamma, beta, .. } = self;
        [("bias", bias.as_ref()), ("gamma", gamma.as_ref()), ("beta", beta.as_ref())]
    }

    /// The block of other tensors.
    pub(super) fn map<C: Backend>(
        &self,
        weight: impl Fn(&Tensor<B, 4>) -> Tensor<C, 4>,
        vector: impl Fn(&Tensor<B, 1>) -> Tensor<C, 1>,
    ) -> ConvBlock<C> {
        ConvBlock {
            weight: weight(&self.weight),
            bias: self.bias.as_ref().map(&vector),
            gamma: self.gamma.as_ref().map(&vector),
            beta: self.beta.as_ref().map(&vector),
            stride: self.stride,
            pool: self.pool,
        }
    }
}

/// Mean and biased variance of one block's convolution output, each `[c_out]`.
#[derive(Clone, Debug)]
pub struct Moments<B: Backend> {
    /// Mean of each channel.
    pub mean: Tensor<B, 1>,
    /// Biased variance of each channel.
    pub variance: Tensor<B, 1>,
}

/// What the blocks normalise with.
#[derive(Clone, Debug)]
pub enum Statistics<B: Backend> {
    /// The moments of the batch at hand.
    Batch,
    /// Given moments, one pair a block.
    Running(Vec<Moments<B>>),
}

/// What [`conv_stack`](super::conv_stack) returns.
#[derive(Clone, Debug)]
pub struct StackOutput<B: Backend> {
    /// Output of the last block, `[n, c', h', w']`.
    pub features: Tensor<B, 4>,
    /// The batch moments of every block, detached; empty under [`Statistics::Running`].
    pub moments: Vec<Moments<B>>,
}

/// How a stack runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StackOptions {
    /// Added to the variance; 1e-5 in PyTorch and here.
    pub epsilon: f64,
    /// Stacks side by side in the channels, one for each of so many tasks. The images are
    /// `[n, lanes * c, h, w]`, and all tensors of a block have `lanes` times as many values along
    /// dimension 0, lane after lane.
    pub lanes: usize,
    /// What the convolutions compute in; statistics and what follows are f32.
    pub precision: Precision,
}

impl Default for StackOptions {
    fn default() -> Self {
        Self { epsilon: 1e-5, lanes: 1, precision: Precision::F32 }
    }
}

/// A stack that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// No block at all.
    #[error("a convolution stack needs at least one block")]
    Empty,
    /// A batch without images.
    #[error("a convolution stack needs at least one image")]
    NoImages,
    /// Channels that cannot be shared out among the lanes.
    #[error("{channels} channels of {name} cannot be shared out among {lanes} lanes")]
    Lanes {
        /// What has the channels.
        name: String,
        /// Channels found.
        channels: usize,
        /// Lanes asked for.
        lanes: usize,
    },
    /// A weight that does not take the channels it is given, or is not 3x3.
    #[error("block {block} needs a weight [c_out, {channels}, 3, 3], found {found:?}")]
    Weight {
        /// Index of the block.
        block: usize,
        /// Channels that arrive at the block.
        channels: usize,
        /// Shape of the weight found.
        found: [usize; 4],
    },
    /// A vector that does not have one value a channel.
    #[error("block {block} needs {wanted} values of {name}, found {found}")]
    Vector {
        /// Index of the block.
        block: usize,
        /// Which vector.
        name: &'static str,
        /// Channels of the block.
        wanted: usize,
        /// Length found.
        found: usize,
    },
    /// A stride other than 1 and 2.
    #[error("block {block} has stride {stride}, only 1 and 2 are served")]
    Stride {
        /// Index of the block.
        block: usize,
        /// Stride found.
        stride: usize,
    },
    /// An image that is gone before the last block.
    #[error("block {block} would shrink an image of {height}x{width} to nothing")]
    TooSmall {
        /// Index of the block.
        block: usize,
        /// Height at the block's pool.
        height: usize,
        /// Width at the block's pool.
        width: usize,
    },
    /// A tangent that does not have the shape of its primal.
    #[error("the tangent of {name} needs shape {wanted:?}, found {found:?}")]
    Tangent {
        /// The primal.
        name: &'static str,
        /// Its shape.
        wanted: Vec<usize>,
        /// Shape found; empty where the primal is absent.
        found: Vec<usize>,
    },
    /// Running statistics for another number of blocks.
    #[error("{blocks} blocks need as many pairs of running moments, found {found}")]
    Moments {
        /// Number of blocks.
        blocks: usize,
        /// Number of pairs found.
        found: usize,
    },
}

/// The shape of one lane of the stack.
///
/// # Errors
/// A [`StackError`] that names the first block that does not fit.
pub fn check<B: Backend>(
    [n, c, h, w]: [usize; 4],
    blocks: &[ConvBlock<B>],
    statistics: &Statistics<B>,
    lanes: usize,
) -> Result<StackShape, StackError> {
    if blocks.is_empty() {
        return Err(StackError::Empty);
    }
    if n == 0 {
        return Err(StackError::NoImages);
    }
    let c = share(|| "the images".into(), c, lanes)?;
    let (mut channels, mut height, mut width) = (c, h, w);
    for (index, block) in blocks.iter().enumerate() {
        let out;
        (out, height, width) = check_block(index, block, channels, height, width)?;
        channels = share(|| format!("block {index}"), out, lanes)?;
    }
    if let Statistics::Running(moments) = statistics {
        check_moments(blocks, moments)?;
    }
    let block = |block: &ConvBlock<B>| {
        let channels_out = block.weight.dims()[0] / lanes;
        BlockShape { channels_out, stride: block.stride, pool: block.pool }
    };
    Ok(StackShape { n, c, h, w, blocks: blocks.iter().map(block).collect() })
}

/// Channels of one lane.
fn share(name: impl Fn() -> String, channels: usize, lanes: usize) -> Result<usize, StackError> {
    if lanes == 0 || !channels.is_multiple_of(lanes) {
        return Err(StackError::Lanes { name: name(), channels, lanes });
    }
    Ok(channels / lanes)
}

fn check_block<B: Backend>(
    index: usize,
    block: &ConvBlock<B>,
    channels: usize,
    height: usize,
    width: usize,
) -> Result<(usize, usize, usize), StackError> {
    let found = block.weight.dims();
    let [out, ..] = found;
    if found != [out, channels, 3, 3] || out == 0 || channels == 0 {
        return Err(StackError::Weight { block: index, channels, found });
    }
    for (name, vector) in block.vectors() {
        if let Some(vector) = vector {
            check_vector(index, name, out, vector)?;
        }
    }
    let (height, width) = match block.stride {
        1 => (height, width),
        2 => (height.div_ceil(2), width.div_ceil(2)),
        stride => {
            return Err(StackError::Stride { block: index, stride });
        }
    };
    let side = if block.pool { 2 } else { 1 };
    if height < side || width < side {
        return Err(StackError::TooSmall { block: index, height, width });
    }
    Ok((out, height / side, width / side))
}

fn check_moments<B: Backend>(
    blocks: &[ConvBlock<B>],
    moments: &[Moments<B>],
) -> Result<(), StackError> {
    if moments.len() != blocks.len() {
        return Err(StackError::Moments { blocks: blocks.len(), found: moments.len() });
    }
    for (index, (block, moments)) in blocks.iter().zip(moments).enumerate() {
        let [out, ..] = block.weight.dims();
        check_vector(index, "running mean", out, &moments.mean)?;
        check_vector(index, "running variance", out, &moments.variance)?;
    }
    Ok(())
}

fn check_vector<B: Backend>(
    block: usize,
    name: &'static str,
    wanted: usize,
    vector: &Tensor<B, 1>,
) -> Result<(), StackError> {
    let [found] = vector.dims();
    if found == wanted {
        return Ok(());
    }
    Err(StackError::Vector { block, name, wanted, found })
}
