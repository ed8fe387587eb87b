mod onnx;

use std::ops::Range;

use burn::config::Config;
use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{ConvBlock, Precision, Route, StackOptions, Statistics, conv_stack, route};

use crate::encoder::{Differentiable, Encoder, task_by_task};
use crate::nn::batch_norm::track_all;
use crate::nn::{
    BatchNorm, BatchNormConfig, BnStatistics, Film, FilmConfig, drawn, global_avg_pool_lanes,
};
use crate::weights::Pretrained;

/// The step of a block that halves the size of its maps.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum Downsampling {
    /// 2x2 max-pool after the block (prototypical and matching networks; MAML on miniImageNet).
    MaxPool,
    /// Convolution with stride 2 (MAML on Omniglot).
    Stride,
}

/// The map from the last block's maps to features.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum Readout {
    /// All pixels of all maps, one after the other.
    Flatten,
    /// The mean of each map (MAML on Omniglot).
    Average,
}

/// Blocks of a [`Conv4`], at most.
const MOST_BLOCKS: usize = 1000;

/// Values of an image or of a block's maps of it, at most: 1 GiB of f32.
pub(crate) const MOST_VALUES: usize = 1 << 28;

/// Sizes that no [`Conv4`] can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Conv4Error {
    /// A depth that nothing is computed in.
    #[error("a network has at most {MOST_BLOCKS} blocks, not {blocks}")]
    Blocks { blocks: usize },
    /// A size of zero, or images of which no pixel is left.
    #[error("{blocks} blocks of {channels} channels do not fit images of {}", shape(image))]
    Fit { image: [usize; 3], channels: usize, blocks: usize },
    /// Images, or maps of them, that fill the memory.
    #[error(
        "an image and its maps have at most {MOST_VALUES} values, too few for {channels} channels of {}",
        shape(image)
    )]
    Values { image: [usize; 3], channels: usize },
}

fn shape([channels, height, width]: &[usize; 3]) -> String {
    format!("{channels}x{height}x{width}")
}

/// Configuration of a [`Conv4`].
#[derive(Config, Debug, PartialEq, Eq)]
pub struct Conv4Config {
    /// Channels, height and width of the images.
    pub image: [usize; 3],
    /// Channels of every block.
    #[config(default = 64)]
    pub channels: usize,
    /// Number of blocks.
    #[config(default = 4)]
    pub blocks: usize,
    /// Number of blocks for each halving of the maps: the last block of so many halves them. 1 in the papers;
    /// more for networks that are deeper than images have halves.
    #[config(default = 1)]
    pub halve_every: usize,
    /// The step of a block that halves the size of its maps.
    #[config(default = "Downsampling::MaxPool")]
    pub downsampling: Downsampling,
    /// The map from the last block's maps to features.
    #[config(default = "Readout::Flatten")]
    pub readout: Readout,
    /// Length of the context that modulates the third block, or the last of fewer, and that CAVIA
    /// adapts to a task as `film.context`; 0 for none. 100 in the paper, on miniImageNet.
    #[config(default = 0)]
    pub context: usize,
    /// Precision of the convolutions; batch-norm, the layers after it, the map of the context and the
    /// features are f32.
    #[config(default = "Precision::F32")]
    pub precision: Precision,
}

/// The convolutional encoder of few-shot learning: blocks of 3x3 convolution, batch-norm, ReLU and
/// 2x2 max-pool, flattened.
///
/// # Shapes
/// - images `[n, c, h, w]` to features `[n, channels * h' * w']`, `h'` and `w'` halved by every
///   block, or by one in [`halve_every`](Conv4Config::halve_every), or `[n, channels]` under [`Readout::Average`]
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
    halve_every: usize,
    pool: bool,
    average: bool,
    film: Option<Film<B>>,
    /// First block of every segment.
    #[module(skip)]
    segments: Vec<usize>,
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

    /// Tells whether an image still has a pixel after the last block.
    pub fn fits(&self) -> bool {
        let [channels, height, width] = self.image;
        let sizes = [channels, self.channels, self.blocks, self.halve_every];
        sizes.iter().all(|&size| size > 0) && self.halved(height) > 0 && self.halved(width) > 0
    }

    /// Checks sizes that come from a file, before anything is allocated for them.
    ///
    /// # Errors
    /// With more than 1000 blocks, where the images do not [fit](Self::fits), and where an image or its maps would have
    /// more than 2^28 values.
    pub fn check(&self) -> Result<(), Conv4Error> {
        let Self { image, channels, blocks, .. } = *self;
        if blocks > MOST_BLOCKS {
            return Err(Conv4Error::Blocks { blocks });
        }
        if !self.fits() {
            return Err(Conv4Error::Fit { image, channels, blocks });
        }
        let [own, height, width] = image;
        let mut values = [own.max(channels), height, width].into_iter();
        let values = values.try_fold(1_usize, usize::checked_mul);
        match values.is_some_and(|values| values <= MOST_VALUES) {
            true => Ok(()),
            false => Err(Conv4Error::Values { image, channels }),
        }
    }

    /// Number of values of all parameters, running averages among them; `None` for more than can be counted.
    pub fn parameters(&self) -> Option<usize> {
        let (inputs, channels) = (self.image[0], self.channels);
        // A bias, and two each of batch-norm's gains and averages, beside the convolution.
        let block = |inputs: usize| inputs.checked_mul(9)?.checked_add(5)?.checked_mul(channels);
        let others = block(channels)?.checked_mul(self.blocks.checked_sub(1)?)?;
        let film = match self.context {
            0 => 0,
            context => context
                .checked_add(1)?
                .checked_mul(channels)?
                .checked_mul(2)?
                .checked_add(context)?,
        };
        block(inputs)?.checked_add(others)?.checked_add(film)
    }

    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        self.maps().iter().product()
    }

    /// Channels, height and width of the maps that a feature vector has one after the other.
    pub fn maps(&self) -> [usize; 3] {
        let [_, height, width] = self.image;
        match self.readout {
            Readout::Flatten => [self.channels, self.halved(height), self.halved(width)],
            Readout::Average => [self.channels, 1, 1],
        }
    }

    /// Draws the parameters.
    ///
    /// # Panics
    /// When the images are too small for so many blocks, or a size is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Conv4<B> {
        let [channels, height, width] = self.image;
        let blocks = self.blocks;
        assert!(self.fits(), "{blocks} blocks do not fit images of {channels}x{height}x{width}");
        let inputs = std::iter::once(channels).chain(std::iter::repeat(self.channels));
        let inputs = inputs.take(self.blocks).enumerate();
        let blocks = inputs.map(|(index, from)| self.block(index, from, device)).collect();
        let pool = self.downsampling == Downsampling::MaxPool;
        let average = self.readout == Readout::Average;
        let film = FilmConfig::new(self.context, self.channels);
        let film = (self.context > 0).then(|| film.init(device));
        let (image, halve_every, precision) = (self.image, self.halve_every, self.precision);
        let segments = self.segment_starts();
        drawn(Conv4 { blocks, image, halve_every, pool, average, film, segments, precision })
    }

    fn block<B: Backend>(&self, index: usize, from: usize, device: &B::Device) -> Block<B> {
        let (stride, _) = self.stride_and_pool(index);
        let conv = Conv2dConfig::new([from, self.channels], [3, 3])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_stride([stride, stride]);
        Block { conv: conv.init(device), norm: BatchNormConfig::new(self.channels).init(device) }
    }

    /// Stride of the convolution of the block of this index, and whether a pool ends it.
    pub(crate) fn stride_and_pool(&self, index: usize) -> (usize, bool) {
        let halves = (index + 1).is_multiple_of(self.halve_every);
        match self.downsampling {
            Downsampling::MaxPool => (1, halves),
            Downsampling::Stride => (if halves { 2 } else { 1 }, false),
        }
    }

    fn halved(&self, size: usize) -> usize {
        (0..self.blocks).fold(size, |size, index| match self.stride_and_pool(index) {
            (_, true) => size / 2,
            (stride, false) => size.div_ceil(stride),
        })
    }
}

impl<B: Backend> Conv4<B> {
    /// The maps of the last block: `[n, c, h, w]` to `[n, channels, h', w']`.
    pub fn forward(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        self.forward_blocks(0..self.blocks.len(), images, statistics, StackOptions::default())
    }

    /// The maps of the last of these blocks, given those of the block before them.
    fn forward_blocks(
        &self,
        range: Range<usize>,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
        options: StackOptions,
    ) -> Tensor<B, 4> {
        let norms = || self.blocks[range.clone()].iter().map(|block| &block.norm);
        let (epsilon, precision) = (self.blocks[0].norm.epsilon, self.precision);
        let options = StackOptions { epsilon, precision, ..options };
        let blocks: Vec<_> = range.clone().map(|index| self.tensors(index)).collect();
        let moments = match statistics {
            BnStatistics::Running => Statistics::Running(norms().map(BatchNorm::running).collect()),
            BnStatistics::Batch | BnStatistics::Track => Statistics::Batch,
        };
        let output = conv_stack(x, &blocks, moments, options);
        if statistics == BnStatistics::Track {
            track_all(norms(), output.moments);
        }
        output.features
    }

    /// The same network with moments of its maps of `images` `[n, c, h, w]` for running averages, so that
    /// [`BnStatistics::Running`] embeds each of them as [`BnStatistics::Batch`] embeds all of them
    /// together: for training that gathers no averages, as MAML's.
    pub fn with_averages_of(mut self, images: Tensor<B, 4>) -> Self {
        let momenta: Vec<_> = self.blocks.iter().map(|block| block.norm.momentum).collect();
        self.blocks.iter_mut().for_each(|block| block.norm.momentum = 1.0);
        self.forward(images, BnStatistics::Track);
        for (block, momentum) in self.blocks.iter_mut().zip(momenta) {
            block.norm.momentum = momentum;
        }
        self
    }

    fn tensors(&self, index: usize) -> ConvBlock<B> {
        let Block { conv, norm } = &self.blocks[index];
        let modulated = self.blocks.len().min(3) - 1;
        let plain = [norm.gamma.val(), norm.beta.val()];
        let [gamma, beta] = match self.film.as_ref().filter(|_| index == modulated) {
            Some(film) => film.folded(plain),
            None => plain,
        };
        ConvBlock {
            weight: conv.weight.val(),
            bias: conv.bias.as_ref().map(|bias| bias.val()),
            gamma: Some(gamma),
            beta: Some(beta),
            stride: conv.stride[0],
            pool: self.pool && (index + 1).is_multiple_of(self.halve_every),
        }
    }

    /// The last block's maps as features, lane after lane: `[lanes, n, d]`.
    fn read_out(&self, maps: Tensor<B, 4>, lanes: usize) -> Tensor<B, 3> {
        if self.average {
            return global_avg_pool_lanes(maps, lanes);
        }
        let [n, channels, h, w] = maps.dims();
        let length = channels / lanes * h * w;
        // Swapped axes would be a copy.
        match lanes {
            1 => maps.reshape([1, n, length]),
            _ => maps.reshape([n, lanes, length]).swap_dims(0, 1),
        }
    }
}

/// The images of all tasks side by side in the channels: `[tasks, n, c, h, w]` to `[n, tasks * c, h, w]`.
fn side_by_side<B: Backend>(images: Tensor<B, 5>) -> Tensor<B, 4> {
    let [tasks, n, c, h, w] = images.dims();
    if tasks == 1 || !matches!(route::<B>(), Route::Host(_)) {
        return images.swap_dims(0, 1).reshape([n, tasks * c, h, w]);
    }
    // Flex copies swapped axes float by float.
    let task = |t| images.clone().narrow(0, t, 1).reshape([n, c, h, w]);
    Tensor::cat((0..tasks).map(task).collect(), 1)
}

impl<B: Backend> Pretrained<B> for Conv4<B> {}

impl<B: Backend> Encoder<B> for Conv4<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let maps = self.forward(images, statistics);
        self.read_out(maps, 1).squeeze_dim(0)
    }

    fn has_lanes(&self) -> bool {
        true
    }

    fn encode_lanes(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let tasks = images.dims()[0];
        let (blocks, images) = (0..self.blocks.len(), side_by_side(images));
        let options = StackOptions { lanes: tasks, ..Default::default() };
        let maps = self.forward_blocks(blocks, images, statistics, options);
        self.read_out(maps, tasks)
    }

    fn encode_tasks(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        // Running averages are of the moments of one task after the other.
        if statistics == BnStatistics::Track {
            return task_by_task(self, images, statistics);
        }
        let [tasks, examples, ..] = images.dims();
        let (blocks, images) = (0..self.blocks.len(), images.flatten(0, 1));
        let options = StackOptions { ghost_batches: tasks, ..Default::default() };
        let maps = self.forward_blocks(blocks, images, statistics, options);
        let features = self.read_out(maps, 1);
        let [_, _, length] = features.dims();
        features.reshape([tasks, examples, length])
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn draws(&self) -> bool {
        false
    }

    /// Each ends with a block that halves its maps, where what is kept is smallest; the last one is
    /// all that keeps no more than one before it.
    fn segments(&self) -> usize {
        self.segments.len()
    }

    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let segments = self.segments.len();
        assert!(index < segments, "there is no segment {index}, but {segments} from 0 on");
        let end = self.segments.get(index + 1).copied().unwrap_or(self.blocks.len());
        let maps =
            self.forward_blocks(self.segments[index]..end, x, statistics, StackOptions::default());
        if index + 1 < segments {
            return maps;
        }
        self.read_out(maps, 1).squeeze_dim::<2>(0).unsqueeze_dims(&[-1, -1])
    }

    fn differentiable(&self) -> Differentiable {
        Differentiable::Twice
    }

    fn architecture(&self) -> String {
        let [c, h, w] = self.image;
        let down = if self.pool { "max-pool" } else { "stride 2" };
        let sparse = match self.halve_every {
            1 => String::new(),
            blocks => format!(" every {blocks} blocks"),
        };
        let channels = self.blocks[0].norm.gamma.dims()[0];
        let average = if self.average { ", averaged" } else { "" };
        let context = match &self.film {
            Some(film) => format!(", context of {}", film.context.dims()[0]),
            None => String::new(),
        };
        let blocks = self.blocks.len();
        format!("conv{blocks}({c}x{h}x{w}, {channels} channels, {down}{sparse}{average}{context})")
    }
}
