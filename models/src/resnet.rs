mod onnx;

use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::encoder::{Differentiable, Encoder};
use crate::nn::conv::{conv, layer};
use crate::nn::{
    BatchNorm, BatchNormConfig, BnStatistics, drawn, global_avg_pool, overlapping_max_pool,
};
use crate::preprocessing::Preprocessing;
use crate::weights::Pretrained;

/// Configuration of a [`ResNet`].
#[derive(Config, Debug, PartialEq)]
pub struct ResNetConfig {
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// `true` for bottlenecks, 1x1, 3x3 and 1x1 to four times as many channels, in place of blocks of two 3x3.
    pub bottleneck: bool,
    /// Channels of the images.
    #[config(default = 3)]
    pub channels: usize,
    /// Channels of the first stage, doubled by each later one; 64 in the paper.
    #[config(default = 64)]
    pub width: usize,
}

/// The residual network of ImageNet as torchvision has it, without its classifier.
///
/// # Shapes
/// - images `[n, c, h, w]`, of colour and 224x224 in the paper and at least 16x16, to features `[n, 8 * width]`, of bottlenecks
///   `[n, 32 * width]`
///
/// # Conventions
/// Names of parameters are torchvision's, whose bottlenecks have their stride in the 3x3 convolution. Convolutions are drawn as
/// there: normal with a variance of 2 / (outputs x window), and the last gain of a block one, not zero.
///
/// # Source
/// He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; the draw, by the size of the outputs, He et al.,
/// "Delving Deep into Rectifiers", ICCV 2015.
#[derive(Module, Debug)]
pub struct ResNet<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    layer1: Vec<Block<B>>,
    layer2: Vec<Block<B>>,
    layer3: Vec<Block<B>>,
    layer4: Vec<Block<B>>,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    conv3: Option<Conv2d<B>>,
    bn3: Option<BatchNorm<B>>,
    downsample: Option<(Conv2d<B>, BatchNorm<B>)>,
}

/// Channels that a bottleneck gives of each of its 3x3 convolution.
const EXPANSION: usize = 4;

impl ResNetConfig {
    /// 4.9 million parameters, 512 features: one block a stage, as few-shot papers have it beside ResNet-18.
    pub fn resnet10() -> Self {
        Self::new([1, 1, 1, 1], false)
    }

    /// 11.2 million parameters, 512 features.
    pub fn resnet18() -> Self {
        Self::new([2, 2, 2, 2], false)
    }

    /// 21.3 million parameters, 512 features.
    pub fn resnet34() -> Self {
        Self::new([3, 4, 6, 3], false)
    }

    /// 23.5 million parameters, 2048 features.
    pub fn resnet50() -> Self {
        Self::new([3, 4, 6, 3], true)
    }

    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        8 * self.width * if self.bottleneck { EXPANSION } else { 1 }
    }

    /// The steps from a picture to an image for torchvision's weights.
    pub fn preprocessing(&self) -> Preprocessing {
        Preprocessing::torchvision()
    }

    /// Draws the parameters.
    pub fn init<B: Backend>(&self, device: &B::Device) -> ResNet<B> {
        let mut from = self.width;
        let mut stage = |index: usize| {
            let width = self.width << index;
            let block = |place| {
                let stride = if place == 0 && index > 0 { 2 } else { 1 };
                let block = Block::new(from, width, stride, self.bottleneck, device);
                from = width * if self.bottleneck { EXPANSION } else { 1 };
                block
            };
            (0..self.blocks[index]).map(block).collect()
        };
        drawn(ResNet {
            conv1: conv([self.channels, self.width], 7, 2, device),
            bn1: BatchNormConfig::new(self.width).init(device),
            layer1: stage(0),
            layer2: stage(1),
            layer3: stage(2),
            layer4: stage(3),
        })
    }
}

impl<B: Backend> Block<B> {
    fn new(from: usize, width: usize, stride: usize, bottleneck: bool, device: &B::Device) -> Self {
        let norm = |channels| BatchNormConfig::new(channels).init(device);
        let to = if bottleneck { EXPANSION * width } else { width };
        let [first, second] = match bottleneck {
            true => [conv([from, width], 1, 1, device), conv([width, width], 3, stride, device)],
            false => [conv([from, width], 3, stride, device), conv([width, width], 3, 1, device)],
        };
        let shortcut = || (conv([from, to], 1, stride, device), norm(to));
        Self {
            conv1: first,
            bn1: norm(width),
            conv2: second,
            bn2: norm(width),
            conv3: bottleneck.then(|| conv([width, to], 1, 1, device)),
            bn3: bottleneck.then(|| norm(to)),
            downsample: (stride != 1 || from != to).then(shortcut),
        }
    }

    fn forward(&self, x: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        let shortcut = match &self.downsample {
            Some((conv, norm)) => layer((conv, norm), x.clone(), statistics, false, None),
            None => x.clone(),
        };
        let y = layer((&self.conv1, &self.bn1), x, statistics, true, None);
        let second = (&self.conv2, &self.bn2);
        match (&self.conv3, &self.bn3) {
            (Some(conv), Some(norm)) => {
                let y = layer(second, y, statistics, true, None);
                layer((conv, norm), y, statistics, true, Some(shortcut))
            }
            _ => layer(second, y, statistics, true, Some(shortcut)),
        }
    }
}

impl<B: Backend> ResNet<B> {
    /// The maps whose means are the features, `[n, 8 * width, ceil(h / 32), ceil(w / 32)]` of images `[n, c, h, w]`; of
    /// bottlenecks four times as many.
    pub fn maps(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        (0..self.block_count()).fold(images, |x, index| self.forward_block(index, x, statistics))
    }

    fn blocks(&self) -> impl Iterator<Item = &Block<B>> {
        [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten()
    }

    fn block_count(&self) -> usize {
        self.blocks().count()
    }

    /// The block of this index, the first one behind the stem.
    pub(crate) fn forward_block(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let x = match index {
            0 => {
                let stem = (&self.conv1, &self.bn1);
                overlapping_max_pool(layer(stem, x, statistics, true, None))
            }
            _ => x,
        };
        self.blocks().nth(index).expect("an index of a block").forward(x, statistics)
    }
}

impl<B: Backend> Encoder<B> for ResNet<B> {
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
        false
    }

    fn differentiable(&self) -> Differentiable {
        Differentiable::Twice
    }

    fn architecture(&self) -> String {
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4].map(Vec::len);
        let bottleneck = self.layer1.first().is_some_and(|block| block.conv3.is_some());
        let kind = if bottleneck { "bottlenecks" } else { "blocks" };
        let channels = match self.conv1.weight.dims()[1] {
            3 => String::new(),
            channels => format!(", {channels} channels"),
        };
        let width = match self.bn1.gamma.dims()[0] {
            64 => String::new(),
            width => format!(", width {width}"),
        };
        format!("resnet({stages:?} {kind}{channels}{width})")
    }
}

impl<B: Backend> Pretrained<B> for ResNet<B> {
    /// Heads, those of self-supervised training among them.
    const IGNORED_NAMES: &'static [&'static str] =
        &["fc.", "head.", "classifier.", "projection_head.", "projector.", "prototypes."];
}
