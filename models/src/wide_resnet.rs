mod onnx;

use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::encoder::{Differentiable, Encoder};
use crate::nn::conv::{conv, convolve};
use crate::nn::{
    BatchNorm, BatchNormConfig, BnStatistics, checked_drop_rate, drawn, dropout, global_avg_pool,
    relu,
};
use crate::preprocessing::Preprocessing;
use crate::weights::Pretrained;

/// Configuration of a [`WideResNet`]; 28 layers and ten times the width by default.
#[derive(Config, Debug, PartialEq)]
pub struct WideResNetConfig {
    /// Blocks of each of the three stages.
    #[config(default = 4)]
    pub blocks: usize,
    /// Width, in those of a narrow network: 16, 32 and 64 channels.
    #[config(default = 10)]
    pub width: usize,
    /// Channels of the images.
    #[config(default = 3)]
    pub channels: usize,
    /// Share of values that [`dropout`] sets to zero in training, between the convolutions of a block. 0.3 in the first paper,
    /// 0 in the second.
    #[config(default = 0.0)]
    pub drop_rate: f64,
}

/// The wide residual network of few-shot learning, WRN-28-10, with batch-norm and ReLU before convolutions.
///
/// # Shapes
/// - images `[n, c, h, w]`, of colour and 80x80 or 84x84 in the papers, to features `[n, 64 * width]`
///
/// # Conventions
/// Names of parameters are those of S2M2's files, `block1.layer.0.bn1` and so on. The first stage keeps the size of maps
/// and the other two halve it. Convolutions are drawn as in the authors' code: normal with a variance of 2 / (outputs x window).
///
/// # Source
/// Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016; for few shots Mangla et al., "Charting the Right
/// Manifold", WACV 2020.
#[derive(Module, Debug)]
pub struct WideResNet<B: Backend> {
    conv1: Conv2d<B>,
    block1: Stage<B>,
    block2: Stage<B>,
    block3: Stage<B>,
    bn1: BatchNorm<B>,
    #[module(skip)]
    drop_rate: f64,
}

#[derive(Module, Debug)]
struct Stage<B: Backend> {
    layer: Vec<Block<B>>,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    bn1: BatchNorm<B>,
    conv1: Conv2d<B>,
    bn2: BatchNorm<B>,
    conv2: Conv2d<B>,
    shortcut: Option<Conv2d<B>>,
}

impl WideResNetConfig {
    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        64 * self.width
    }

    /// The steps from a picture to an image for S2M2's weights.
    pub fn preprocessing(&self) -> Preprocessing {
        Preprocessing::mini_imagenet()
    }

    /// Draws the parameters.
    ///
    /// # Panics
    /// For a share to drop that is not from 0 to below 1.
    pub fn init<B: Backend>(&self, device: &B::Device) -> WideResNet<B> {
        let widths = [16, 16 * self.width, 32 * self.width, 64 * self.width];
        let stage = |index: usize, stride| {
            let [from, to] = [widths[index], widths[index + 1]];
            let block = |place| match place {
                0 => Block::new([from, to], stride, device),
                _ => Block::new([to, to], 1, device),
            };
            Stage { layer: (0..self.blocks).map(block).collect() }
        };
        drawn(WideResNet {
            conv1: conv([self.channels, 16], 3, 1, device),
            block1: stage(0, 1),
            block2: stage(1, 2),
            block3: stage(2, 2),
            bn1: BatchNormConfig::new(widths[3]).init(device),
            drop_rate: checked_drop_rate(self.drop_rate),
        })
    }
}

impl<B: Backend> Block<B> {
    fn new([from, to]: [usize; 2], stride: usize, device: &B::Device) -> Self {
        Self {
            bn1: BatchNormConfig::new(from).init(device),
            conv1: conv([from, to], 3, stride, device),
            bn2: BatchNormConfig::new(to).init(device),
            conv2: conv([to, to], 3, 1, device),
            shortcut: (from != to).then(|| conv([from, to], 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>, statistics: BnStatistics, drop_rate: f64) -> Tensor<B, 4> {
        let active = relu(self.bn1.forward(x.clone(), statistics));
        let shortcut = match &self.shortcut {
            Some(layer) => convolve(layer, active.clone()),
            None => x,
        };
        let y = relu(self.bn2.forward(convolve(&self.conv1, active), statistics));
        let y = match statistics {
            BnStatistics::Track => dropout(y, drop_rate),
            BnStatistics::Batch | BnStatistics::Running => y,
        };
        convolve(&self.conv2, y) + shortcut
    }
}

impl<B: Backend> WideResNet<B> {
    /// The maps whose means are the features, `[n, 64 * width, ceil(h / 4), ceil(w / 4)]` of images `[n, c, h, w]`.
    pub fn maps(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        (0..self.block_count()).fold(images, |x, index| self.forward_block(index, x, statistics))
    }

    fn blocks(&self) -> impl Iterator<Item = &Block<B>> {
        [&self.block1, &self.block2, &self.block3].into_iter().flat_map(|stage| &stage.layer)
    }

    fn block_count(&self) -> usize {
        self.blocks().count()
    }

    /// The block of this index: the first one behind the stem, the last one with the last norm.
    pub(crate) fn forward_block(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let x = if index == 0 { convolve(&self.conv1, x) } else { x };
        let block = self.blocks().nth(index).expect("an index of a block");
        let y = block.forward(x, statistics, self.drop_rate);
        if index + 1 < self.block_count() {
            return y;
        }
        relu(self.bn1.forward(y, statistics))
    }
}

impl<B: Backend> Encoder<B> for WideResNet<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        global_avg_pool(self.maps(images, statistics))
    }

    fn segments(&self) -> usize {
        self.block_count()
    }

    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let segments = self.block_count();
        assert!(index < segments, "there is no segment {index}, but {segments} from 0 on");
        let maps = self.forward_block(index, x, statistics);
        if index + 1 < segments {
            return maps;
        }
        global_avg_pool(maps).unsqueeze_dims(&[-1, -1])
    }

    fn draws(&self) -> bool {
        self.drop_rate > 0.0
    }

    fn differentiable(&self) -> Differentiable {
        Differentiable::Twice
    }

    fn architecture(&self) -> String {
        let (blocks, width) = (self.block1.layer.len(), self.bn1.gamma.dims()[0] / 64);
        let channels = match self.conv1.weight.dims()[1] {
            3 => String::new(),
            channels => format!("({channels} channels)"),
        };
        format!("wide-resnet-{}-{width}{channels}", 6 * blocks + 4)
    }
}

impl<B: Backend> Pretrained<B> for WideResNet<B> {
    /// Heads, and those that tell how far a picture was turned.
    const IGNORED_NAMES: &'static [&'static str] =
        &["fc.", "linear.", "classifier.", "rot_classifier.", "rotate_classifier."];

    fn parameter_name(published: &str) -> String {
        published.replace("convShortcut", "shortcut")
    }
}
