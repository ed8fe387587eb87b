mod onnx;

use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::encoder::{Differentiable, Encoder};
use crate::nn::conv::{conv, convolve};
use crate::nn::{
    BatchNorm, BatchNormConfig, BnStatistics, checked_drop_rate, drawn, drop_block,
    global_avg_pool, leaky_relu, max_pool,
};
use crate::preprocessing::Preprocessing;
use crate::weights::Pretrained;

/// Configuration of a [`ResNet12`].
#[derive(Config, Debug, PartialEq)]
pub struct ResNet12Config {
    /// Channels of the images.
    #[config(default = 3)]
    pub channels: usize,
    /// Channels of the four blocks; the last are the features.
    #[config(default = "[64, 160, 320, 640]")]
    pub widths: [usize; 4],
    /// Share of pixels that [`drop_block`] drops in training, one by one in the first two blocks and in squares of 5 in
    /// the last two. 0.1 in the papers.
    #[config(default = 0.0)]
    pub drop_rate: f64,
}

/// The residual network of few-shot learning: four blocks of three 3x3 convolutions with batch-norm and leaky ReLU,
/// a 1x1 shortcut and a 2x2 max-pool; then the mean of each map.
///
/// # Shapes
/// - images `[n, c, h, w]`, 84x84 in the papers and at least 16x16, to features `[n, widths[3]]`
///
/// # Conventions
/// Names of parameters are those of FEAT's and LibFewShot's files, `layer1.0.conv1` and so on. Convolutions are drawn as in the second paper's
/// code: normal with a variance of 2 / (outputs x window), the gain of a ReLU without slope.
///
/// # Source
/// Oreshkin et al., "TADAM", NeurIPS 2018; widths, slope and DropBlock as in Lee et al., "Meta-Learning with
/// Differentiable Convex Optimization", CVPR 2019.
#[derive(Module, Debug)]
pub struct ResNet12<B: Backend> {
    layer1: [Block<B>; 1],
    layer2: [Block<B>; 1],
    layer3: [Block<B>; 1],
    layer4: [Block<B>; 1],
    drop_rate: f64,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    conv3: Conv2d<B>,
    bn3: BatchNorm<B>,
    downsample: (Conv2d<B>, BatchNorm<B>),
}

/// Slope of the activation below zero.
const SLOPE: f64 = 0.1;

/// Side of the squares that are dropped in the last two blocks.
const SQUARE: usize = 5;

impl ResNet12Config {
    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        self.widths[3]
    }

    /// The steps from a picture to an image for FEAT's and LibFewShot's weights.
    pub fn preprocessing(&self) -> Preprocessing {
        Preprocessing::mini_imagenet()
    }

    /// Draws the parameters.
    ///
    /// # Panics
    /// For a share to drop that is not from 0 to below 1.
    pub fn init<B: Backend>(&self, device: &B::Device) -> ResNet12<B> {
        let [first, second, third, fourth] = self.widths;
        let block = |from, to| [Block::new([from, to], device)];
        drawn(ResNet12 {
            layer1: block(self.channels, first),
            layer2: block(first, second),
            layer3: block(second, third),
            layer4: block(third, fourth),
            drop_rate: checked_drop_rate(self.drop_rate),
        })
    }
}

impl<B: Backend> Block<B> {
    fn new([from, to]: [usize; 2], device: &B::Device) -> Self {
        let norm = || BatchNormConfig::new(to).init(device);
        Self {
            conv1: conv([from, to], 3, 1, device),
            bn1: norm(),
            conv2: conv([to, to], 3, 1, device),
            bn2: norm(),
            conv3: conv([to, to], 3, 1, device),
            bn3: norm(),
            downsample: (conv([from, to], 1, 1, device), norm()),
        }
    }

    fn forward(&self, x: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        let layer =
            |conv: &Conv2d<B>, norm: &BatchNorm<B>, x| norm.forward(convolve(conv, x), statistics);
        let shortcut = layer(&self.downsample.0, &self.downsample.1, x.clone());
        let y = leaky_relu(layer(&self.conv1, &self.bn1, x), SLOPE);
        let y = leaky_relu(layer(&self.conv2, &self.bn2, y), SLOPE);
        let y = layer(&self.conv3, &self.bn3, y);
        // The slope is not negative, so the largest of a window is the same before and after.
        leaky_relu(max_pool(y + shortcut), SLOPE)
    }
}

impl<B: Backend> ResNet12<B> {
    fn blocks(&self) -> [&Block<B>; 4] {
        [&self.layer1, &self.layer2, &self.layer3, &self.layer4].map(|[block]| block)
    }

    /// The maps whose means are the features, `[n, d, h / 16, w / 16]` of images `[n, c, h, w]`, halved four times and
    /// rounded down each time.
    pub fn maps(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        (0..4).fold(images, |x, index| self.forward_block(index, x, statistics))
    }

    /// The block of this index, and what training drops after it.
    pub(crate) fn forward_block(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let y = self.blocks()[index].forward(x, statistics);
        match statistics {
            BnStatistics::Track => {
                drop_block(y, self.drop_rate, if index < 2 { 1 } else { SQUARE })
            }
            BnStatistics::Batch | BnStatistics::Running => y,
        }
    }
}

impl<B: Backend> Encoder<B> for ResNet12<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        global_avg_pool(self.maps(images, statistics))
    }

    fn segments(&self) -> usize {
        4
    }

    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        assert!(index < 4, "there is no segment {index}, but 4 from 0 on");
        let maps = self.forward_block(index, x, statistics);
        if index < 3 {
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
        let widths = self.blocks().map(|block| block.bn1.gamma.dims()[0]);
        let [_, channels, ..] = self.layer1[0].conv1.weight.dims();
        format!("resnet12({channels} channels, widths {widths:?})")
    }
}

impl<B: Backend> Pretrained<B> for ResNet12<B> {
    /// Heads, and those that tell how far a picture was turned.
    const IGNORED_NAMES: &'static [&'static str] =
        &["fc.", "linear.", "classifier.", "rot_classifier.", "rotate_classifier."];
}
