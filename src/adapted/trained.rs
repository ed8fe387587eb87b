//! Networks that were trained here: their parameters are in the model's own file.

use std::fmt;
use std::path::Path;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_models::{Conv4, Conv4Config};
use serde::{Deserialize, Serialize};

use super::{BackboneId, Result, backbone};
use crate::adapt::{filled, slots, values};
use crate::data::{ImageShape, Preparation, Shades};

/// Where a network comes from, as an adapted model notes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BackboneOrigin {
    /// Published weights, which are in a file of their own.
    Published(BackboneId),
    /// Trained here: the weights are in the model's file.
    Trained(TrainedNetwork),
}

/// A network that was trained here, as an adapted model notes it.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::adapted::{PretrainedBackbone, TrainedNetwork};
/// use fewshot::data::Picture;
/// use fewshot::models::Conv4Config;
///
/// let device = Default::default();
/// let config = Conv4Config::new([3, 16, 16]).with_channels(8);
/// let encoder = config.init::<Flex>(&device); // and trained, as `examples/01_proto_net.rs` does it
/// let backbone = PretrainedBackbone::trained(encoder, TrainedNetwork::new(config), &device);
/// let picture = Picture::from_rgb(2, 1, vec![255, 0, 0, 0, 0, 255]).expect("two pixels");
/// let (features, length) = backbone.embed(&[picture]);
/// assert_eq!((features.len(), length), (8, 8));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainedNetwork {
    /// The network; pictures become images of its shape.
    pub conv4: Conv4Config,
    /// What becomes of dark and bright in pictures, so that they look as the images that it was trained on.
    pub shades: Shades,
    /// The run that trained it, where there was one.
    pub run: Option<TrainingRun>,
}

/// A run that trained a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRun {
    /// What it is called: its folder, or a checkpoint of it.
    pub name: String,
    /// How it was trained.
    pub method: String,
    /// What it was trained on.
    pub data: String,
    /// Hash of its checkpoint, hexadecimal.
    pub sha256: String,
}

/// Parameters of a network, running averages included, as they are in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameters {
    /// The name and shape of each, in their order.
    pub(super) list: Vec<(String, Vec<usize>)>,
    /// Their values, one after the other.
    pub(super) values: Vec<f32>,
}

impl BackboneOrigin {
    /// How pictures become the network's images.
    pub fn preparation(&self) -> Preparation {
        match self {
            Self::Published(id) => Preparation::Published(id.preprocessing),
            Self::Trained(TrainedNetwork { conv4, shades, .. }) => {
                let [channels, height, width] = conv4.image;
                let image = ImageShape::new(channels, height, width);
                Preparation::Stretched { image, shades: *shades }
            }
        }
    }
}

/// `dinov2-s`, or `conv4 of runs/mine`.
impl fmt::Display for BackboneOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(id) => f.write_str(&id.name),
            Self::Trained(TrainedNetwork { conv4, run, .. }) => {
                write!(f, "conv{}", conv4.blocks)?;
                run.as_ref().map_or(Ok(()), |run| write!(f, " of {}", run.name))
            }
        }
    }
}

impl TrainedNetwork {
    /// A network without a known run, which takes pictures with their shades kept.
    pub fn new(conv4: Conv4Config) -> Self {
        Self { conv4, shades: Shades::Kept, run: None }
    }

    /// The network with its parameters of a file; or what is wrong with them.
    pub(super) fn restored<B: Backend>(
        &self,
        parameters: &Parameters,
        device: &B::Device,
    ) -> Result<Conv4<B>, String> {
        let config = &self.conv4;
        let [channels, ..] = config.image;
        config.check().map_err(|error| error.to_string())?;
        if ![1, 3].contains(&channels) {
            return Err(format!("images of its network have {channels} channels, not 1 or 3"));
        }
        let (needed, held) = (config.parameters(), parameters.values.len());
        if needed.is_none_or(|needed| needed > held) {
            let needed = needed.map_or("uncountable".to_owned(), |needed| needed.to_string());
            return Err(format!("its network has {needed} parameters, of which it holds {held}"));
        }
        let network = self.conv4.init::<B>(device);
        if listed(&network) != parameters.list {
            return Err("its weights are of another network than it says".to_owned());
        }
        let mut rest = parameters.values.as_slice();
        let mut tensors = Vec::with_capacity(parameters.list.len());
        for (name, shape) in &parameters.list {
            let (own, others) = rest
                .split_at_checked(shape.iter().product())
                .ok_or_else(|| format!("its weights end within {name}"))?;
            rest = others;
            let own = TensorData::new(own.to_vec(), [own.len()]);
            tensors.push(Tensor::<B, 1>::from_data(own, device));
        }
        Ok(filled::<B, _>(network, &tensors))
    }
}

impl TrainingRun {
    /// A run that trained on `data` by `method` and wrote this checkpoint.
    ///
    /// # Errors
    /// When the checkpoint cannot be read.
    pub fn new(
        name: impl Into<String>,
        (method, data): (impl Into<String>, impl Into<String>),
        checkpoint: impl AsRef<Path>,
    ) -> Result<Self> {
        let sha256 = backbone::sha256(checkpoint.as_ref())?;
        Ok(Self { name: name.into(), method: method.into(), data: data.into(), sha256 })
    }
}

impl Parameters {
    pub(super) fn of<B: Backend>(network: &Conv4<B>) -> Self {
        let each = values::<B, _>(network).into_iter();
        let values = each.flat_map(|of| of.into_data().iter::<f32>().collect::<Vec<_>>());
        Self { list: listed(network), values: values.collect() }
    }
}

fn listed<B: Backend>(network: &Conv4<B>) -> Vec<(String, Vec<usize>)> {
    slots::<B, _>(network).into_iter().map(|slot| (slot.path, slot.shape)).collect()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use fewshot_models::{BnStatistics, Encoder};

    use super::*;

    fn network() -> (TrainedNetwork, Conv4<Flex>) {
        let config = Conv4Config::new([1, 16, 16]).with_channels(4).with_context(3);
        let device = Default::default();
        let network = config.init::<Flex>(&device);
        // Running averages are parameters of the file as well.
        network.encode(Tensor::ones([2, 1, 16, 16], &device), BnStatistics::Track);
        (TrainedNetwork::new(config), network)
    }

    #[test]
    fn a_network_is_restored_to_the_bit() {
        let (noted, network) = network();
        let parameters = Parameters::of(&network);
        let restored = noted.restored::<Flex>(&parameters, &Default::default()).unwrap();
        assert_eq!(Parameters::of(&restored), parameters);
        let averages = parameters.list.iter().filter(|(name, _)| name.contains("running_"));
        assert_eq!(averages.count(), 2 * 4);
        let images = || Tensor::<Flex, 4>::ones([1, 1, 16, 16], &Default::default()) * 0.3;
        let [one, other] = [network, restored]
            .map(|network| network.encode(images(), BnStatistics::Running).into_data());
        one.assert_eq(&other, true);
    }

    #[test]
    fn parameters_of_another_network_are_refused() {
        let (noted, network) = network();
        let refused = |noted: &TrainedNetwork, parameters: &Parameters| {
            noted.restored::<Flex>(parameters, &Default::default()).unwrap_err()
        };
        let mut parameters = Parameters::of(&network);
        let other = |conv4: Conv4Config| TrainedNetwork::new(conv4);
        let wider = other(noted.conv4.clone().with_channels(5));
        assert!(refused(&wider, &parameters).contains("parameters, of which it holds"));
        let narrower = other(noted.conv4.clone().with_channels(3));
        assert!(refused(&narrower, &parameters).contains("another network"));
        let small = other(Conv4Config::new([1, 8, 8]));
        assert!(refused(&small, &parameters).contains("do not fit images of 1x8x8"));
        let two = other(Conv4Config { image: [2, 16, 16], ..noted.conv4.clone() });
        assert!(refused(&two, &parameters).contains("have 2 channels"));
        parameters.values.truncate(100);
        assert!(refused(&noted, &parameters).contains("of which it holds 100"));
    }
}
