//! The networks that embed pictures, as an adapted model notes them: published ones and those that were trained here.

use std::fmt;
use std::path::{Path, PathBuf};

use fewshot_models::{EncoderConfig, Preprocessing};
use serde::{Deserialize, Serialize};

use super::published::{PublishedWeights, weights_cache};
use super::{AdaptedModelError, Result};
use crate::data::{ImageShape, Preparation, Shades};
use crate::files;

/// A published network and its weights, as an adapted model notes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackboneId {
    /// One of the [`PUBLISHED_WEIGHTS`](super::PUBLISHED_WEIGHTS).
    pub name: String,
    /// Hash of the file of weights, hexadecimal.
    pub sha256: String,
    /// Place of that file when the model was made.
    pub file: PathBuf,
    /// Preparation of its images from pictures.
    pub preprocessing: Preprocessing,
}

/// Source of a network, as an adapted model notes it.
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
    #[serde(flatten)]
    pub network: EncoderConfig,
    /// Change of dark and bright in pictures, so that they look as the images that it was trained on.
    pub shades: Shades,
    /// The run that trained it, where there was one.
    pub run: Option<TrainingRun>,
}

/// A run that trained a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRun {
    /// Its name: its folder, or a checkpoint of it.
    pub name: String,
    /// Method of its training.
    pub method: String,
    /// Data of its training.
    pub data: String,
    /// Hash of its checkpoint, hexadecimal.
    pub sha256: String,
}

impl BackboneId {
    /// The file of weights: at its place, or in the cache.
    pub(super) fn locate(&self) -> Result<PathBuf> {
        let cached = weights_cache().map(|folder| folder.join(&self.sha256));
        let tried: Vec<_> = [Some(self.file.clone()), cached].into_iter().flatten().collect();
        for path in tried.iter().filter(|path| path.is_file()) {
            if sha256(path)? == self.sha256 {
                return Ok(path.clone());
            }
        }
        let file = PublishedWeights::named(&self.name)?.file;
        let published = file.is_some_and(|file| self.sha256.starts_with(file.sha256));
        let (backbone, sha256) = (self.name.clone(), self.sha256.clone());
        Err(AdaptedModelError::NoWeights { backbone, sha256, tried, published })
    }
}

impl BackboneOrigin {
    /// Preparation of the network's images from pictures.
    pub fn preparation(&self) -> Preparation {
        match self {
            Self::Published(id) => Preparation::Published(id.preprocessing),
            Self::Trained(TrainedNetwork { network, shades, .. }) => {
                let [channels, height, width] = network.image();
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
            Self::Trained(TrainedNetwork { network, run, .. }) => {
                f.write_str(&network.name())?;
                run.as_ref().map_or(Ok(()), |run| write!(f, " of {}", run.name))
            }
        }
    }
}

impl TrainedNetwork {
    /// A network without a known run, which takes pictures with their shades kept.
    pub fn new(network: impl Into<EncoderConfig>) -> Self {
        Self { network: network.into(), shades: Shades::Kept, run: None }
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
        let sha256 = sha256(checkpoint.as_ref())?;
        Ok(Self { name: name.into(), method: method.into(), data: data.into(), sha256 })
    }
}

/// The sha256 of a file, hexadecimal.
pub(super) fn sha256(file: &Path) -> Result<String> {
    files::sha256(file).map_err(|source| AdaptedModelError::File { path: file.to_owned(), source })
}
