use burn::config::Config;
use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{ConvBlock, StackOptions, conv_stack};

use crate::encoder::Encoder;
use crate::nn::batch_norm::stack_statistics;
use crate::nn::{BatchNorm, BatchNormConfig, BnStatistics, drawn};

/// How a block halves the size of its maps.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum Downsampling {
    /// 2x2 max-pool after the block (prototypical and matching networks; MAML on miniImageNet).
    MaxPool,
    /// Convolution with stride 2 (MAML on Omniglot).
    Stride,
}

/// Configuration of a [`Conv4`].
#[derive(Config, Debug)]
pub struct Conv4Config {
    /// Channels, height and width of the images.
    pub image: [usize; 3],
    /// Channels of every block.
    #[config(default = 64)]
    pub channels: usize,
    /// Number of blocks.
    #[config(default = 4)]
    pub blocks: usize,
    /// How a block halves the size of its maps.
    #[config(default = "Downsampling::MaxPool")]
    pub downsampling: Downsampling,
}

/// The convolutional encoder of few-shot learning: blocks of 3x3 convolution, batch-norm, ReLU and
/// 2x2 max-pool, flattened.
///
/// # Shapes
/// - images `[n, c, h, w]` to features `[n, channels * h' * w']`, `h'` and `w'` halved by every block
///
/// # Conventions
/// Parameters are drawn as PyTorch draws them. A bias before batch-norm has no effect on training;
/// it is there because published weights have it.
///
/// # Source
/// Vinyals et al., "Matching Networks for One Shot Learning", NeurIPS 2016; Snell et al.,
/// "Prototypical Networks for Few-shot Learning", NeurIPS 2017.
#[derive(Module, Debug)]
pub struct Conv4<B: Backend> {
    blocks: Vec<Block<B>>,
    image: [usize; 3],
    stride: usize,
    pool: bool,
}

/// One block of a [`Conv4`].
#[derive(Module, Debug)]
struct Block<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl Conv4Config {
    /// 28x28 grey images to 64 features.
    pub fn omniglot() -> Self {
        Self::new([1, 28, 28])
    }

    /// 84x84 colour images to 1600 features.
    pub fn mini_imagenet() -> Self {
        Self::new([3, 84, 84])
    }

    /// Whether an image still has a pixel after the last block.
    pub fn fits(&self) -> bool {
        let [channels, height, width] = self.image;
        let sizes = [channels, self.channels, self.blocks];
        sizes.iter().all(|&size| size > 0) && self.halved(height) > 0 && self.halved(width) > 0
    }

    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        let [_, height, width] = self.image;
        self.channels * self.halved(height) * self.halved(width)
    }

    /// Draws the parameters.
    ///
    /// # Panics
    /// When the images are too small for so many blocks, or a size is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Conv4<B> {
        let [channels, height, width] = self.image;
        let wanted = self.blocks;
        assert!(self.fits(), "{wanted} blocks do not fit images of {channels}x{height}x{width}");
        let inputs = std::iter::once(channels).chain(std::iter::repeat(self.channels));
        let blocks = inputs.take(self.blocks).map(|from| self.block(from, device)).collect();
        let pool = self.downsampling == Downsampling::MaxPool;
        drawn(Conv4 { blocks, image: self.image, stride: if pool { 1 } else { 2 }, pool })
    }

    fn block<B: Backend>(&self, from: usize, device: &B::Device) -> Block<B> {
        let conv = Conv2dConfig::new([from, self.channels], [3, 3])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_stride(match self.downsampling {
                Downsampling::MaxPool => [1, 1],
                Downsampling::Stride => [2, 2],
            });
        Block { conv: conv.init(device), norm: BatchNormConfig::new(self.channels).init(device) }
    }

    fn halved(&self, size: usize) -> usize {
        (0..self.blocks).fold(size, |size, _| match self.downsampling {
            Downsampling::MaxPool => size / 2,
            Downsampling::Stride => size.div_ceil(2),
        })
    }
}

impl<B: Backend> Conv4<B> {
    /// The maps of the last block: `[n, c, h, w]` to `[n, channels, h', w']`.
    pub fn forward(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        let blocks: Vec<_> = self.blocks.iter().map(|block| self.tensors(block)).collect();
        let norms = || self.blocks.iter().map(|block| &block.norm);
        let output =
            conv_stack(images, &blocks, stack_statistics(norms(), statistics), self.options());
        if statistics == BnStatistics::Track {
            for (norm, moments) in norms().zip(output.moments) {
                norm.track(moments);
            }
        }
        output.features
    }

    fn tensors(&self, block: &Block<B>) -> ConvBlock<B> {
        ConvBlock {
            weight: block.conv.weight.val(),
            bias: block.conv.bias.as_ref().map(|bias| bias.val()),
            gamma: Some(block.norm.gamma.val()),
            beta: Some(block.norm.beta.val()),
            stride: self.stride,
            pool: self.pool,
        }
    }

    fn options(&self) -> StackOptions {
        StackOptions { epsilon: self.blocks[0].norm.epsilon, ..Default::default() }
    }
}

impl<B: Backend> Encoder<B> for Conv4<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        self.forward(images, statistics).flatten(1, 3)
    }

    fn architecture(&self) -> String {
        let [c, h, w] = self.image;
        let down = if self.pool { "max-pool" } else { "stride 2" };
        let channels = self.blocks[0].norm.gamma.dims()[0];
        format!("conv{}({c}x{h}x{w}, {channels} channels, {down})", self.blocks.len())
    }
}
