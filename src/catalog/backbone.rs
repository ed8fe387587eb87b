use std::sync::LazyLock;

use fewshot_models::{Conv4Config, CostModel, MlpConfig};
use serde::{Deserialize, Serialize};

use crate::hardware::HardwareError;

/// A network that can be chosen by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Backbone {
    /// Name by which the command takes the backbone.
    pub name: String,
    /// Channels, height and width of its images.
    pub image: [usize; 3],
    /// The network.
    pub config: BackboneConfig,
}

/// The networks there are, as their configurations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackboneConfig {
    /// Convolution blocks.
    Conv4(Conv4Config),
    /// Linear layers.
    Mlp(MlpConfig),
}

impl Backbone {
    /// A network under a name of one's own; `image` is what it takes.
    pub fn new(name: impl Into<String>, image: [usize; 3], config: BackboneConfig) -> Self {
        Self { name: name.into(), image, config }
    }

    fn conv4(name: &str, config: Conv4Config) -> Self {
        Self::new(name, config.image, BackboneConfig::Conv4(config))
    }

    /// The same network for images of another shape, if they leave a pixel after its last block, and
    /// a fully connected network has no more than 2^16 of them to take.
    pub fn for_images(&self, image: [usize; 3]) -> Option<Self> {
        let config = match &self.config {
            BackboneConfig::Conv4(config) => {
                let config = Conv4Config { image, ..config.clone() };
                config.fits().then_some(BackboneConfig::Conv4(config))
            }
            BackboneConfig::Mlp(config) => {
                let d_input = image.iter().product();
                let config = MlpConfig { d_input, ..config.clone() };
                (d_input <= 1 << 16).then_some(BackboneConfig::Mlp(config))
            }
        };
        Some(Self::new(&self.name, image, config?))
    }

    /// Formulas of its time and memory.
    pub fn model(&self) -> &dyn CostModel {
        match &self.config {
            BackboneConfig::Conv4(config) => config,
            BackboneConfig::Mlp(config) => config,
        }
    }

    /// Length of the feature vector of an image.
    pub fn features(&self) -> usize {
        match &self.config {
            BackboneConfig::Conv4(config) => config.features(),
            BackboneConfig::Mlp(config) => config.layers.last().copied().unwrap_or(config.d_input),
        }
    }
}

/// The backbones to choose from, which are those of the papers: Conv-4 with 64 channels for Omniglot
/// (max-pools, or strides and an average) and for miniImageNet, the latter with 32 channels besides, as
/// MAML has it, and MAML's fully connected network.
pub fn backbones() -> &'static [Backbone] {
    static BACKBONES: LazyLock<Vec<Backbone>> = LazyLock::new(|| {
        let mlp = BackboneConfig::Mlp(MlpConfig::new(28 * 28));
        let mini_imagenet = Conv4Config::mini_imagenet();
        vec![
            Backbone::conv4("conv4-omniglot", Conv4Config::omniglot()),
            Backbone::conv4("conv4-omniglot-strided", Conv4Config::omniglot_strided()),
            Backbone::conv4("conv4-mini-imagenet", mini_imagenet.clone()),
            Backbone::conv4("conv4-mini-imagenet-32", mini_imagenet.with_channels(32)),
            Backbone::new("mlp-omniglot", [1, 28, 28], mlp),
        ]
    });
    &BACKBONES
}

/// The backbone of this name.
///
/// # Errors
/// [`HardwareError::Unknown`], with the name that is nearest.
pub fn backbone(name: &str) -> Result<&'static Backbone, HardwareError> {
    let backbone = backbones().iter().find(|backbone| backbone.name == name);
    let names = backbones().iter().map(|backbone| backbone.name.as_str());
    backbone.ok_or_else(|| HardwareError::unknown("model", name, names))
}
