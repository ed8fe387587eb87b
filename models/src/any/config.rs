use burn::tensor::backend::Backend;
use fewshot_kernels::Precision;
use serde::{Deserialize, Serialize};

use super::{AnyEncoder, Normalization};
use crate::conv4::MOST_VALUES;
use crate::nn::is_drop_rate;
use crate::preprocessing::Preprocessing;
use crate::{
    Conv4Config, Conv4Error, EfficientNetLiteConfig, Readout, ResNet12Config, ResNetConfig,
    VitConfig, WideResNetConfig,
};

/// Configuration of an [`AnyEncoder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncoderConfig {
    /// Convolution blocks.
    Conv4(Conv4Config),
    /// The residual network of few-shot learning.
    ResNet12(OnImages<ResNet12Config>),
    /// Residual networks of ImageNet.
    ResNet(OnImages<ResNetConfig>),
    /// Wide residual networks.
    WideResNet(OnImages<WideResNetConfig>),
    /// EfficientNet-Lite0.
    EfficientNetLite(OnImages<EfficientNetLiteConfig>),
    /// Vision transformers.
    Vit(OnImages<VitConfig>),
}

/// A network that takes images of several sizes, with the images that it is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnImages<C> {
    /// Channels, height and width of the images.
    pub image: [usize; 3],
    /// Normalisation that the encoder begins with; without one it takes images as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalization: Option<Normalization>,
    /// Features: the means of the last maps, or all of their pixels.
    #[serde(default = "average", skip_serializing_if = "is_average")]
    pub readout: Readout,
    /// The network.
    #[serde(flatten)]
    pub network: C,
}

fn average() -> Readout {
    Readout::Average
}

fn is_average(readout: &Readout) -> bool {
    *readout == Readout::Average
}

/// A network that there cannot be, or that does not take its images.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum EncoderError {
    #[error(transparent)]
    Conv4(#[from] Conv4Error),
    /// Images of grey, or of more colours than three, for a network of colour.
    #[error("{network} takes images of 3 channels, not of {channels}")]
    Channels { network: String, channels: usize },
    /// Images that are too small.
    #[error("{network} takes images of {least}x{least} pixels or more, not of {height}x{width}")]
    Small { network: String, least: usize, height: usize, width: usize },
    /// Images that are not made of patches.
    #[error("{network} takes images whose sides are multiples of {patch}, not of {height}x{width}")]
    Patches { network: String, patch: usize, height: usize, width: usize },
    /// Images, or maps of them, that fill the memory.
    #[error("images of {height}x{width} are too large for {network}")]
    Large { network: String, height: usize, width: usize },
    /// All pixels of maps, of a network that has none.
    #[error("{network} has no maps: its features are a vector of the whole image")]
    Maps { network: String },
    /// A size of zero, or one that nothing is computed in.
    #[error("{network} has a size of {size}")]
    Size { network: String, size: usize },
    /// A share of dropped values that is none, or all.
    #[error("{network} drops a share from 0 to below 1, not {rate}")]
    DropRate { network: String, rate: f64 },
}

/// Makes the configuration of a network for images of this shape.
type ForImages = fn([usize; 3]) -> EncoderConfig;

/// The networks that have a name, in the order in which lists show them.
const NAMED: [(&str, ForImages); 14] = [
    ("conv4", |image| EncoderConfig::Conv4(Conv4Config::new(image))),
    ("resnet10", |image| resnet(ResNetConfig::resnet10(), image)),
    ("resnet12", |image| {
        EncoderConfig::ResNet12(on(ResNet12Config::new().with_channels(image[0]), image))
    }),
    ("resnet18", |image| resnet(ResNetConfig::resnet18(), image)),
    ("resnet34", |image| resnet(ResNetConfig::resnet34(), image)),
    ("resnet50", |image| resnet(ResNetConfig::resnet50(), image)),
    ("wrn-28-10", |image| {
        EncoderConfig::WideResNet(on(WideResNetConfig::new().with_channels(image[0]), image))
    }),
    ("efficientnet-lite0", |image| {
        EncoderConfig::EfficientNetLite(on(EfficientNetLiteConfig::new(), image))
    }),
    ("dinov2-s", |image| EncoderConfig::Vit(on(VitConfig::dinov2_s14(), image))),
    ("dinov2-b", |image| EncoderConfig::Vit(on(VitConfig::dinov2_b14(), image))),
    ("dinov2-s-reg", |image| EncoderConfig::Vit(on(VitConfig::dinov2_s14_reg(), image))),
    ("dinov2-b-reg", |image| EncoderConfig::Vit(on(VitConfig::dinov2_b14_reg(), image))),
    ("clip-b32", |image| EncoderConfig::Vit(on(VitConfig::clip_b32(), image))),
    ("clip-b32-gelu", |image| EncoderConfig::Vit(on(VitConfig::clip_b32_gelu(), image))),
];

fn on<C>(network: C, image: [usize; 3]) -> OnImages<C> {
    OnImages { image, normalization: None, readout: Readout::Average, network }
}

fn resnet(config: ResNetConfig, image: [usize; 3]) -> EncoderConfig {
    EncoderConfig::ResNet(on(config.with_channels(image[0]), image))
}

impl From<Conv4Config> for EncoderConfig {
    fn from(config: Conv4Config) -> Self {
        Self::Conv4(config)
    }
}

/// Evaluates an expression with the configuration that there is, of a [`Conv4Config`] another.
macro_rules! with_config {
    ($any:expr, $conv4:ident => $of_conv4:expr, $config:ident => $value:expr) => {
        match $any {
            EncoderConfig::Conv4($conv4) => $of_conv4,
            EncoderConfig::ResNet12($config) => $value,
            EncoderConfig::ResNet($config) => $value,
            EncoderConfig::WideResNet($config) => $value,
            EncoderConfig::EfficientNetLite($config) => $value,
            EncoderConfig::Vit($config) => $value,
        }
    };
}

impl EncoderConfig {
    /// Names of the networks that [`named`](Self::named) makes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// The network of this name, for images of this shape `[c, h, w]`, as its paper has it; `None` for an unknown name.
    pub fn named(name: &str, image: [usize; 3]) -> Option<Self> {
        let (_, config) = NAMED.iter().find(|(known, _)| *known == name)?;
        Some(config(image))
    }

    /// Name of the network; of one that is not among the [`names`](Self::names), that of its kind.
    pub fn name(&self) -> String {
        if let Self::Conv4(config) = self {
            return format!("conv{}", config.blocks);
        }
        let plain = self.clone().with_normalization(None).with_readout(Readout::Average);
        let named = NAMED.iter().find(|(_, config)| config(self.image()) == plain);
        let kind = || match self {
            Self::Conv4(_) => "conv4",
            Self::ResNet12(_) => "resnet12",
            Self::ResNet(_) => "resnet",
            Self::WideResNet(_) => "wide-resnet",
            Self::EfficientNetLite(_) => "efficientnet-lite",
            Self::Vit(_) => "vit",
        };
        named.map_or_else(kind, |(name, _)| *name).to_owned()
    }

    /// Channels, height and width of the images.
    pub fn image(&self) -> [usize; 3] {
        with_config!(self, conv4 => conv4.image, config => config.image)
    }

    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        match self.maps() {
            Some(maps) => maps.iter().product(),
            None => {
                with_config!(self, conv4 => conv4.features(), config => config.network.features())
            }
        }
    }

    /// Channels, height and width of the maps that a feature vector has one after the other; `None` where features
    /// are the means of maps, or a token.
    pub fn maps(&self) -> Option<[usize; 3]> {
        match self {
            Self::Conv4(config) => Some(config.maps()),
            _ => self.last_maps().filter(|_| self.readout() == Readout::Flatten),
        }
    }

    /// Channels, height and width of the last maps of a residual network; `None` of others.
    fn last_maps(&self) -> Option<[usize; 3]> {
        let [_, height, width] = self.image();
        let (channels, side): (usize, fn(usize) -> usize) = match self {
            Self::ResNet12(of) => (of.network.features(), |side| side / 16),
            Self::ResNet(of) => (of.network.features(), |side| side.div_ceil(32)),
            Self::WideResNet(of) => (of.network.features(), |side| side.div_ceil(4)),
            Self::Conv4(_) | Self::EfficientNetLite(_) | Self::Vit(_) => return None,
        };
        Some([channels, side(height), side(width)])
    }

    fn readout(&self) -> Readout {
        with_config!(self, conv4 => conv4.readout, config => config.readout)
    }

    /// The same network with these features. A [`Conv4`](crate::Conv4) has its own, and stays as it is.
    pub fn with_readout(mut self, readout: Readout) -> Self {
        with_config!(&mut self, _conv4 => {}, config => config.readout = readout);
        self
    }

    /// The steps from a picture to an image for published weights; `None` of a network without any.
    pub fn preprocessing(&self) -> Option<Preprocessing> {
        with_config!(self, _conv4 => None, config => Some(config.network.preprocessing()))
    }

    /// Normalisation that the encoder begins with.
    pub fn normalization(&self) -> Option<Normalization> {
        with_config!(self, _conv4 => None, config => config.normalization)
    }

    /// Precision of its products.
    pub fn precision(&self) -> Precision {
        with_config!(self, conv4 => conv4.precision, _config => Precision::F32)
    }

    /// The same network for images of another shape, if they have as many channels.
    pub fn for_images(mut self, image: [usize; 3]) -> Option<Self> {
        let [channels, ..] = self.image();
        with_config!(&mut self, conv4 => conv4.image = image, config => config.image = image);
        (channels == image[0]).then_some(self)
    }

    /// The same network, a [`Conv4`](crate::Conv4) in this precision; others compute in `f32`.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        if let Self::Conv4(config) = &mut self {
            config.precision = precision;
        }
        self
    }

    /// The same network, normalising so. A [`Conv4`](crate::Conv4) stays as it is: it has no published weights.
    pub fn with_normalization(mut self, normalization: Option<Normalization>) -> Self {
        with_config!(&mut self, _conv4 => {}, config => config.normalization = normalization);
        self
    }

    /// Number of values of all parameters, running averages among them; `None` for more than can be counted.
    pub fn parameters(&self) -> Option<usize> {
        with_config!(self, conv4 => conv4.parameters(), config => config.network.count())
    }

    /// Checks that there is such a network and that it takes its images, before anything is allocated for it.
    ///
    /// # Errors
    /// Where it is not so.
    pub fn check(&self) -> Result<(), EncoderError> {
        let network = || self.name();
        let [channels, height, width] = self.image();
        let (sizes, least, colour) = match self {
            Self::Conv4(config) => return Ok(config.check()?),
            Self::ResNet12(of) => (of.network.sizes(), 16, false),
            Self::ResNet(of) => (of.network.sizes(), 16, false),
            Self::WideResNet(of) => (of.network.sizes(), 8, false),
            Self::EfficientNetLite(_) => (Vec::new(), 32, true),
            Self::Vit(of) => (of.network.sizes(), of.network.patch, true),
        };
        let beyond = sizes.into_iter().find(|size| !(1..=MOST_SIZE).contains(size));
        if let Some(size) = beyond {
            return Err(EncoderError::Size { network: network(), size });
        }
        if let Some(rate) = self.drop_rates().into_iter().find(|rate| !is_drop_rate(*rate)) {
            return Err(EncoderError::DropRate { network: network(), rate });
        }
        let normalized = self.normalization().is_some();
        if channels == 0 || (channels != 3 && (colour || normalized)) {
            return Err(EncoderError::Channels { network: network(), channels });
        }
        if self.readout() == Readout::Flatten && self.last_maps().is_none() {
            return Err(EncoderError::Maps { network: network() });
        }
        if height < least || width < least {
            return Err(EncoderError::Small { network: network(), least, height, width });
        }
        if let Self::Vit(OnImages { network: VitConfig { patch, .. }, .. }) = *self
            && !(height.is_multiple_of(patch) && width.is_multiple_of(patch))
        {
            return Err(EncoderError::Patches { network: network(), patch, height, width });
        }
        let values = height.checked_mul(width).and_then(|of| of.checked_mul(channels.max(64)));
        match values.is_some_and(|values| values <= MOST_VALUES) {
            true => Ok(()),
            false => Err(EncoderError::Large { network: network(), height, width }),
        }
    }

    /// Shares that training drops.
    fn drop_rates(&self) -> [f64; 2] {
        match self {
            Self::ResNet12(of) => [of.network.drop_rate, 0.0],
            Self::WideResNet(of) => [of.network.drop_rate, 0.0],
            Self::Vit(of) => [of.network.drop_rate, of.network.drop_path],
            Self::Conv4(_) | Self::ResNet(_) | Self::EfficientNetLite(_) => [0.0; 2],
        }
    }

    /// Draws the parameters.
    ///
    /// # Panics
    /// Where [`check`](Self::check) finds a fault.
    pub fn init<B: Backend>(&self, device: &B::Device) -> AnyEncoder<B> {
        let encoder: AnyEncoder<B> = with_config!(
            self,
            conv4 => conv4.init::<B>(device).into(),
            config => config.network.init::<B>(device).into()
        );
        encoder.with_normalization(self.normalization()).with_readout(self.readout())
    }
}

/// Channels, tokens and blocks of a network, at most.
const MOST_SIZE: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::module::Module;

    use super::*;

    /// Networks of every kind, small ones where there are any.
    fn networks() -> Vec<EncoderConfig> {
        let vit = VitConfig::new(crate::VitFamily::Clip, 8, 3, 8, 2, 2).with_projection(5);
        let dino = VitConfig::new(crate::VitFamily::DinoV2, 8, 3, 8, 2, 2).with_registers(2);
        let widths = [4, 6, 8, 10];
        vec![
            EncoderConfig::Conv4(Conv4Config::new([1, 16, 16]).with_channels(3)),
            EncoderConfig::ResNet12(on(ResNet12Config::new().with_widths(widths), [3, 16, 16])),
            EncoderConfig::named("resnet10", [1, 16, 16]).unwrap(),
            resnet(ResNetConfig::new([1, 2, 1, 1], true), [3, 16, 16]),
            resnet(ResNetConfig::new([1, 2, 1, 1], true).with_width(4), [3, 16, 16]),
            resnet(ResNetConfig::new([1, 1, 2, 1], false).with_width(4), [3, 16, 16]),
            EncoderConfig::WideResNet(on(
                WideResNetConfig::new().with_blocks(2).with_width(1),
                [3, 8, 8],
            )),
            EncoderConfig::named("efficientnet-lite0", [3, 32, 32]).unwrap(),
            EncoderConfig::Vit(on(vit, [3, 24, 24])),
            EncoderConfig::Vit(on(dino, [3, 16, 24])),
        ]
    }

    #[test]
    fn parameters_are_counted_before_they_are_drawn() {
        for config in networks() {
            assert_eq!(config.check(), Ok(()));
            let network = config.init::<Flex>(&Default::default());
            assert_eq!(config.parameters(), Some(network.num_params()), "{}", config.name());
        }
    }

    #[test]
    fn a_configuration_reads_as_it_is_written_and_that_of_a_conv4_as_before() {
        for config in networks() {
            let normalization = config.preprocessing().map(Normalization::from);
            let config = config.with_normalization(normalization);
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<EncoderConfig>(&text).unwrap(), config, "{text}");
        }
        let conv4 = Conv4Config::omniglot();
        let text = format!(r#"{{"conv4":{}}}"#, serde_json::to_string(&conv4).unwrap());
        assert_eq!(serde_json::to_string(&EncoderConfig::Conv4(conv4)).unwrap(), text);
    }

    #[test]
    fn a_network_of_a_name_has_this_name() {
        for name in EncoderConfig::names() {
            assert_eq!(EncoderConfig::named(name, [3, 64, 64]).unwrap().name(), name);
        }
        assert_eq!(EncoderConfig::named("resnet", [3, 64, 64]), None);
        let narrow = ResNet12Config::new().with_widths([4, 6, 8, 10]);
        assert_eq!(EncoderConfig::ResNet12(on(narrow, [3, 16, 16])).name(), "resnet12");
    }

    #[test]
    fn images_that_a_network_does_not_take_are_refused() {
        let refused = |name: &str, image| {
            EncoderConfig::named(name, image).unwrap().check().unwrap_err().to_string()
        };
        let text = refused("efficientnet-lite0", [1, 64, 64]);
        assert_eq!(text, "efficientnet-lite0 takes images of 3 channels, not of 1");
        let text = refused("resnet18", [1, 8, 16]);
        assert_eq!(text, "resnet18 takes images of 16x16 pixels or more, not of 8x16");
        let text = refused("clip-b32", [3, 64, 84]);
        assert_eq!(text, "clip-b32 takes images whose sides are multiples of 32, not of 64x84");
        let text = refused("resnet12", [3, 1 << 20, 1 << 20]);
        assert_eq!(text, "images of 1048576x1048576 are too large for resnet12");
        assert!(refused("conv4", [3, 8, 8]).contains("do not fit images of 3x8x8"));
        let grey = EncoderConfig::named("resnet12", [1, 84, 84]).unwrap();
        assert_eq!(grey.check(), Ok(()));
        let weights = grey.preprocessing().map(Normalization::from);
        let text = grey.with_normalization(weights).check().unwrap_err().to_string();
        assert_eq!(text, "resnet12 takes images of 3 channels, not of 1");
        let wide = ResNet12Config::new().with_widths([4, 6, 8, 1 << 40]);
        let text = EncoderConfig::ResNet12(on(wide, [3, 16, 16])).check().unwrap_err().to_string();
        assert_eq!(text, "resnet12 has a size of 1099511627776");
    }

    #[test]
    fn shares_that_cannot_be_dropped_are_refused() {
        let vit = VitConfig::new(crate::VitFamily::Clip, 8, 3, 8, 2, 2);
        for rate in [f64::NAN, -0.1, 1.0, f64::INFINITY] {
            for config in [
                EncoderConfig::ResNet12(on(
                    ResNet12Config::new().with_drop_rate(rate),
                    [3, 16, 16],
                )),
                EncoderConfig::WideResNet(on(
                    WideResNetConfig::new().with_drop_rate(rate),
                    [3, 8, 8],
                )),
                EncoderConfig::Vit(on(vit.clone().with_drop_rate(rate), [3, 24, 24])),
                EncoderConfig::Vit(on(vit.clone().with_drop_path(rate), [3, 24, 24])),
            ] {
                let text = config.check().unwrap_err().to_string();
                assert!(text.ends_with(&format!("from 0 to below 1, not {rate}")), "{text}");
            }
        }
        let most = ResNet12Config::new().with_drop_rate(0.99);
        assert_eq!(EncoderConfig::ResNet12(on(most, [3, 16, 16])).check(), Ok(()));
    }

    #[test]
    #[should_panic(expected = "a share from 0 to below 1, not NaN")]
    fn a_network_without_a_share_is_not_drawn() {
        let config = WideResNetConfig::new().with_blocks(1).with_width(1).with_drop_rate(f64::NAN);
        config.init::<Flex>(&Default::default());
    }
}
