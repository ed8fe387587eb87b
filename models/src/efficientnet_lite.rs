mod onnx;

use burn::config::Config;
use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{FusedConvOptions, depthwise, depthwise_conv2d};

use crate::encoder::{Differentiable, Encoder};
use crate::nn::conv::{conv, conv_config, convolve, fused, options};
use crate::nn::{BatchNorm, BatchNormConfig, BnStatistics, drawn, global_avg_pool, relu6};
use crate::preprocessing::Preprocessing;
use crate::weights::Pretrained;

/// Configuration of an [`EfficientNetLite`]: there is one, Lite0.
#[derive(Config, Debug, PartialEq)]
pub struct EfficientNetLiteConfig {}

/// EfficientNet-Lite0 without its classifier: a small network for processors without squeeze-and-excitation, with ReLU6.
///
/// # Shapes
/// - images `[n, 3, h, w]`, 224x224 in training and at least 32x32, to features `[n, 1280]`
///
/// # Conventions
/// Names of parameters are those of the PyTorch ports, without the leading `_`. Padding is TensorFlow's `SAME`: at stride
/// 2 it may be one more behind than before. Epsilon of batch-norm is 1e-3. Convolutions are
/// drawn as in TensorFlow's code: normal with a variance of 2 / (outputs of a group x window).
///
/// # Source
/// Tan and Le, "EfficientNet", ICML 2019; the lite variant is TensorFlow's.
#[derive(Module, Debug)]
pub struct EfficientNetLite<B: Backend> {
    conv_stem: Conv2d<B>,
    bn0: BatchNorm<B>,
    blocks: Vec<Block<B>>,
    conv_head: Conv2d<B>,
    bn1: BatchNorm<B>,
}

/// An inverted residual: 1x1 to more channels, a convolution of each channel by itself, 1x1 to fewer.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    expand_conv: Option<Conv2d<B>>,
    bn0: Option<BatchNorm<B>>,
    depthwise_conv: Conv2d<B>,
    bn1: BatchNorm<B>,
    project_conv: Conv2d<B>,
    bn2: BatchNorm<B>,
}

/// Repeats, window, stride of the first block, expansion, output channels.
pub(crate) const STAGES: [[usize; 5]; 7] = [
    [1, 3, 1, 1, 16],
    [2, 3, 2, 6, 24],
    [2, 5, 2, 6, 40],
    [3, 3, 2, 6, 80],
    [3, 5, 1, 6, 112],
    [4, 5, 2, 6, 192],
    [1, 3, 1, 6, 320],
];

pub(crate) const STEM: usize = 32;
pub(crate) const FEATURES: usize = 1280;

/// Share of the new batch in a running average.
pub(crate) const MOMENTUM: f64 = 0.01;

/// The bounds of the activation.
const RELU6: [f32; 2] = [0.0, 6.0];

impl EfficientNetLiteConfig {
    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        FEATURES
    }

    /// The steps from a picture to an image for the published weights.
    pub fn preprocessing(&self) -> Preprocessing {
        Preprocessing::efficientnet_lite()
    }

    /// Draws the parameters.
    pub fn init<B: Backend>(&self, device: &B::Device) -> EfficientNetLite<B> {
        let mut from = STEM;
        let mut blocks = Vec::new();
        for [repeats, window, stride, expansion, to] in STAGES {
            for place in 0..repeats {
                let stride = if place == 0 { stride } else { 1 };
                blocks.push(Block::new([from, to], expansion, [window, stride], device));
                from = to;
            }
        }
        drawn(EfficientNetLite {
            conv_stem: same_padded([3, STEM], [3, 2], 1, device),
            bn0: norm(STEM, device),
            blocks,
            conv_head: conv([from, FEATURES], 1, 1, device),
            bn1: norm(FEATURES, device),
        })
    }
}

fn norm<B: Backend>(channels: usize, device: &B::Device) -> BatchNorm<B> {
    BatchNormConfig::new(channels).with_epsilon(1e-3).with_momentum(MOMENTUM).init(device)
}

/// A convolution of `groups` of channels, padded so that the size is kept up to the stride.
fn same_padded<B: Backend>(
    channels: [usize; 2],
    [window, stride]: [usize; 2],
    groups: usize,
    device: &B::Device,
) -> Conv2d<B> {
    let config = conv_config(channels, window, stride).with_groups(groups);
    match stride {
        1 => config.init(device),
        _ => config.with_padding(PaddingConfig2d::Same).init(device),
    }
}

impl<B: Backend> Block<B> {
    fn new(
        [from, to]: [usize; 2],
        expansion: usize,
        [window, stride]: [usize; 2],
        device: &B::Device,
    ) -> Self {
        let wide = from * expansion;
        Self {
            expand_conv: (expansion > 1).then(|| conv([from, wide], 1, 1, device)),
            bn0: (expansion > 1).then(|| norm(wide, device)),
            depthwise_conv: same_padded([wide, wide], [window, stride], wide, device),
            bn1: norm(wide, device),
            project_conv: conv([wide, to], 1, 1, device),
            bn2: norm(to, device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        if statistics == BnStatistics::Running {
            return self.forward_fused(x);
        }
        let mut y = x.clone();
        if let (Some(conv), Some(norm)) = (&self.expand_conv, &self.bn0) {
            y = relu6(norm.forward(convolve(conv, y), statistics));
        }
        let (FusedConvOptions { stride, padding, .. }, filters) =
            (options(&self.depthwise_conv, &y, RELU6), self.depthwise_conv.weight.val());
        let y = depthwise(y, filters, stride, padding);
        let y = relu6(self.bn1.forward(y, statistics));
        let y = self.bn2.forward(convolve(&self.project_conv, y), statistics);
        match x.dims() == y.dims() {
            true => y + x,
            false => y,
        }
    }

    /// The same by running averages, each convolution with all that follows it.
    fn forward_fused(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let mut y = x.clone();
        if let (Some(conv), Some(norm)) = (&self.expand_conv, &self.bn0) {
            y = fused(conv, norm, y, RELU6, None);
        }
        let conv = &self.depthwise_conv;
        let options = options(conv, &y, RELU6);
        let y = depthwise_conv2d(y, conv.weight.val(), self.bn1.running_map(), options);
        let [n, _, h, w] = y.dims();
        let add = (x.dims() == [n, self.project_conv.weight.dims()[0], h, w]).then_some(x);
        fused(&self.project_conv, &self.bn2, y, [f32::NEG_INFINITY, f32::INFINITY], add)
    }
}

impl<B: Backend> Encoder<B> for EfficientNetLite<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let segments = 0..self.blocks.len();
        segments.fold(images, |x, index| self.forward_segment(index, x, statistics)).flatten(1, 3)
    }

    fn segments(&self) -> usize {
        self.blocks.len()
    }

    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let segments = self.blocks.len();
        assert!(index < segments, "there is no segment {index}, but {segments} from 0 on");
        let layer = |conv: &Conv2d<B>, norm: &BatchNorm<B>, x| match statistics {
            BnStatistics::Running => fused(conv, norm, x, RELU6, None),
            _ => relu6(norm.forward(convolve(conv, x), statistics)),
        };
        let x = if index == 0 { layer(&self.conv_stem, &self.bn0, x) } else { x };
        let y = self.blocks[index].forward(x, statistics);
        if index + 1 < segments {
            return y;
        }
        global_avg_pool(layer(&self.conv_head, &self.bn1, y)).unsqueeze_dims(&[-1, -1])
    }

    fn draws(&self) -> bool {
        false
    }

    fn differentiable(&self) -> Differentiable {
        Differentiable::Twice
    }

    fn architecture(&self) -> String {
        "efficientnet-lite0".to_owned()
    }
}

impl<B: Backend> Pretrained<B> for EfficientNetLite<B> {
    const IGNORED_NAMES: &'static [&'static str] = &["_fc.", "fc.", "classifier."];

    fn parameter_name(published: &str) -> String {
        let parts = published.split('.').map(|part| part.strip_prefix('_').unwrap_or(part));
        parts.collect::<Vec<_>>().join(".")
    }

    /// All but numbers and the last part have an underscore.
    fn published_name(parameter: &str) -> String {
        let parts: Vec<_> = parameter.split('.').collect();
        let underscored = |(at, part): (usize, &&str)| match part.parse::<usize>() {
            Err(_) if at + 1 < parts.len() => format!("_{part}"),
            _ => (*part).to_owned(),
        };
        parts.iter().enumerate().map(underscored).collect::<Vec<_>>().join(".")
    }
}
