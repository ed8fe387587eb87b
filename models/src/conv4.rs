use burn::config::Config;
use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{ConvBlock, Precision, StackOptions, conv_stack};

use crate::encoder::Encoder;
use crate::nn::batch_norm::stack_statistics;
use crate::nn::{
    BatchNorm, BatchNormConfig, BnStatistics, Film, FilmConfig, drawn, global_avg_pool,
};

/// How a block halves the size of its maps.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum Downsampling {
    /// 2x2 max-pool after the block (prototypical and matching networks; MAML on miniImageNet).
    MaxPool,
    /// Convolution with stride 2 (MAML on Omniglot).
    Stride,
}

/// How the last block's maps become features.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum Readout {
    /// All pixels of all maps, one after the other.
    Flatten,
    /// The mean of each map (MAML on Omniglot).
    Average,
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
    /// How the last block's maps become features.
    #[config(default = "Readout::Flatten")]
    pub readout: Readout,
    /// Length of the context that modulates the third block, or the last of fewer, and that CAVIA
    /// adapts to a task as `film.context`; 0 for none. 100 in the paper, on miniImageNet.
    #[config(default = 0)]
    pub context: usize,
    /// What the convolutions compute in; batch-norm, what follows it, the map of the context and the
    /// features are f32.
    #[config(default = "Precision::F32")]
    pub precision: Precision,
}

/// The convolutional encoder of few-shot learning: blocks of 3x3 convolution, batch-norm, ReLU and
/// 2x2 max-pool, flattened.
///
/// # Shapes
/// - images `[n, c, h, w]` to features `[n, channels * h' * w']`, `h'` and `w'` halved by every
///   block, or `[n, channels]` under [`Readout::Average`]
///
/// # Conventions
/// Parameters are drawn as PyTorch draws them. A bias before batch-norm has no effect on training;
/// it is there because published weights have it.
///
/// With a context, scales and shifts after the third batch-norm are a [`Film`]'s, all of which is
/// drawn last: the other parameters of a seed are those without a context.
///
/// # Source
/// Vinyals et al., "Matching Networks for One Shot Learning", NeurIPS 2016; Snell et al.,
/// "Prototypical Networks for Few-shot Learning", NeurIPS 2017; with strides and averages, Finn et
/// al., "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017.
#[derive(Module, Debug)]
pub struct Conv4<B: Backend> {
    blocks: Vec<Block<B>>,
    image: [usize; 3],
    stride: usize,
    pool: bool,
    average: bool,
    film: Option<Film<B>>,
    #[module(skip)]
    precision: Precision,
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

    /// 28x28 grey images to 64 features by strides and an average, as in the MAML paper.
    pub fn omniglot_strided() -> Self {
        Self::omniglot().with_downsampling(Downsampling::Stride).with_readout(Readout::Average)
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
        match self.readout {
            Readout::Flatten => self.channels * self.halved(height) * self.halved(width),
            Readout::Average => self.channels,
        }
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
        let average = self.readout == Readout::Average;
        let stride = if pool { 1 } else { 2 };
        let film = FilmConfig::new(self.context, self.channels);
        let film = (self.context > 0).then(|| film.init(device));
        let (image, precision) = (self.image, self.precision);
        drawn(Conv4 { blocks, image, stride, pool, average, film, precision })
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
        self.forward_lanes(images, statistics, 1)
    }

    fn forward_lanes(
        &self,
        images: Tensor<B, 4>,
        statistics: BnStatistics,
        lanes: usize,
    ) -> Tensor<B, 4> {
        let blocks = self.tensors();
        let norms = || self.blocks.iter().map(|block| &block.norm);
        let (epsilon, precision) = (self.blocks[0].norm.epsilon, self.precision);
        let options = StackOptions { epsilon, lanes, precision };
        let output = conv_stack(images, &blocks, stack_statistics(norms(), statistics), options);
        if statistics == BnStatistics::Track {
            for (norm, moments) in norms().zip(output.moments) {
                norm.track(moments);
            }
        }
        output.features
    }

    fn tensors(&self) -> Vec<ConvBlock<B>> {
        let modulated = self.blocks.len().min(3) - 1;
        let films = |index| self.film.as_ref().filter(|_| index == modulated);
        let blocks = self.blocks.iter().enumerate();
        blocks.map(|(index, block)| self.block_tensors(block, films(index))).collect()
    }

    fn block_tensors(&self, block: &Block<B>, film: Option<&Film<B>>) -> ConvBlock<B> {
        let norm = [block.norm.gamma.val(), block.norm.beta.val()];
        let [gamma, beta] = match film {
            Some(film) => film.folded(norm),
            None => norm,
        };
        ConvBlock {
            weight: block.conv.weight.val(),
            bias: block.conv.bias.as_ref().map(|bias| bias.val()),
            gamma: Some(gamma),
            beta: Some(beta),
            stride: self.stride,
            pool: self.pool,
        }
    }

    /// The last block's maps as features, lane after lane: `[n, lanes * d]`.
    fn read_out(&self, maps: Tensor<B, 4>) -> Tensor<B, 2> {
        if self.average { global_avg_pool(maps) } else { maps.flatten(1, 3) }
    }
}

impl<B: Backend> Encoder<B> for Conv4<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        self.read_out(self.forward(images, statistics))
    }

    const LANES: bool = true;

    fn encode_lanes(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let [tasks, examples, c, h, w] = images.dims();
        let side_by_side = images.swap_dims(0, 1).reshape([examples, tasks * c, h, w]);
        let features = self.read_out(self.forward_lanes(side_by_side, statistics, tasks));
        let [_, all] = features.dims();
        features.reshape([examples, tasks, all / tasks]).swap_dims(0, 1)
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn architecture(&self) -> String {
        let [c, h, w] = self.image;
        let down = if self.pool { "max-pool" } else { "stride 2" };
        let channels = self.blocks[0].norm.gamma.dims()[0];
        let average = if self.average { ", averaged" } else { "" };
        let context = match &self.film {
            Some(film) => format!(", context of {}", film.context.dims()[0]),
            None => String::new(),
        };
        let blocks = self.blocks.len();
        format!("conv{blocks}({c}x{h}x{w}, {channels} channels, {down}{average}{context})")
    }
}
