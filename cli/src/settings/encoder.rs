//! The encoder of a run, where it is another than its method's own Conv-4.

use burn::module::{AutodiffModule, Module};
use fewshot::adapted::{AdaptedModelError, PublishedWeights};
use fewshot::files::sha256;
use fewshot::models::{AnyEncoder, Encoder, EncoderConfig, Normalization};
use fewshot::train::Checkpoint;
use serde::{Deserialize, Serialize};

use super::RunSettings;
use crate::args::{CONV4, EncoderSpec};
use crate::checkpoint;
use crate::prelude::*;

/// A network, and the weights that its training began with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EncoderSettings {
    pub(crate) network: EncoderConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weights: Option<InitialWeights>,
    /// Absent once a checkpoint has the parameters.
    #[serde(skip)]
    begin: Parameters,
}

/// Weights that training began with, as a run notes them: they need not be there any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InitialWeights {
    /// The file of weights, or the folder or checkpoint of the run.
    path: PathBuf,
    /// Hash of the file, or of the run's checkpoint, hexadecimal.
    sha256: String,
}

/// Source of the parameters that training begins with.
#[derive(Clone, Debug, Default, PartialEq)]
enum Parameters {
    #[default]
    Drawn,
    File(PathBuf),
    /// The checkpoint of another run.
    Run(PathBuf),
}

impl EncoderSpec {
    /// Side in pixels of the images that the network's weights were trained on, if it has any.
    pub(crate) fn image_size(&self) -> Result<Option<usize>> {
        match self {
            Self::Drawn(_) | Self::Wide(_) => Ok(None),
            Self::Weights(name, _) => {
                let config = EncoderConfig::named(name, [3, 0, 0]);
                let preprocessing = config.and_then(|config| config.preprocessing());
                Ok(preprocessing.map(|preprocessing| preprocessing.crop))
            }
            Self::Run(run) => Ok(Some(run_at(run)?.2.image.height)),
        }
    }

    /// `true` for an encoder with parameters that are not drawn.
    pub(crate) fn has_weights(&self) -> bool {
        self.path().is_some()
    }

    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Drawn(_) | Self::Wide(_) => None,
            Self::Weights(_, path) | Self::Run(path) => Some(absolute(path)),
        }
    }
}

/// The checkpoint of a run on images, its place, and the settings of the run.
fn run_at(given: &Path) -> Result<(Checkpoint, PathBuf, RunSettings)> {
    let path = checkpoint::file(given);
    if given.is_dir() && !path.exists() {
        let given = given.display();
        return Err(usage!("{given} is no folder of a run: there is no checkpoint in it"));
    }
    let checkpoint = Checkpoint::read(&path)?;
    if checkpoint::is_sinusoid_run(&checkpoint) {
        let given = given.display();
        return Err(usage!("{given} has learned sine waves: its network takes no images"));
    }
    let settings = RunSettings::from_checkpoint(&checkpoint, &path, None, None)?;
    Ok((checkpoint, path, settings))
}

impl EncoderSettings {
    /// The encoder that was asked for, on images as in `run`; `None` for the method's own. `earlier` is that of the
    /// run that goes on: its parameters are in the checkpoint, and the weights that it began with are not read.
    pub(crate) fn new(
        spec: Option<&EncoderSpec>,
        run: &RunSettings,
        earlier: Option<Self>,
    ) -> Result<Option<Self>> {
        let Some(spec) = spec else { return Ok(None) };
        let path = spec.path();
        let noted = earlier.as_ref().and_then(|earlier| earlier.weights.as_ref());
        let same_network = match (spec, &earlier) {
            (EncoderSpec::Weights(name, _), Some(earlier)) => earlier.network.name() == *name,
            _ => true,
        };
        let noted = noted.map(|weights| &weights.path);
        let same_weights =
            path.as_ref().zip(noted).is_some_and(|(path, noted)| is_same_place(path, noted));
        if same_network && same_weights {
            return Ok(earlier);
        }
        let image = run.image();
        let named = |name: &str| match name {
            CONV4 => EncoderConfig::Conv4(run.conv4()),
            name => EncoderConfig::named(name, image).expect("parsed as one of the names"),
        };
        let (network, sha256, begin) = match spec {
            EncoderSpec::Drawn(name) if name == CONV4 => return Ok(None),
            EncoderSpec::Drawn(name) => (named(name), None, Parameters::Drawn),
            EncoderSpec::Wide(channels) => {
                let config = run.conv4().with_channels(*channels);
                (config.into(), None, Parameters::Drawn)
            }
            EncoderSpec::Weights(name, file) => {
                let network = named(name);
                let normalization = network.preprocessing().map(Normalization::from);
                let sha256 = hash(file)?;
                if let Ok(published) = PublishedWeights::named(name) {
                    published.refuse_others(file, &sha256)?;
                }
                let network = network.with_normalization(normalization);
                (network, Some(sha256), Parameters::File(file.clone()))
            }
            EncoderSpec::Run(given) => {
                let (_, path, other) = run_at(given)?;
                let network = other.network()?.with_precision(run.precision);
                let network = network.for_images(image).ok_or_else(|| {
                    let (given, own, image) = (given.display(), other.image, run.image);
                    usage!("the encoder of {given} takes images of {own}, not of {image}")
                })?;
                (network, Some(hash(&path)?), Parameters::Run(path))
            }
        };
        let weights = path.zip(sha256).map(|(path, sha256)| InitialWeights { path, sha256 });
        Ok(Some(Self { network, weights, begin }))
    }

    /// The encoder with the parameters that training begins with, where these are not drawn.
    pub(super) fn begun<B: AutodiffBackend>(
        &self,
        drawn: AnyEncoder<B>,
        device: &B::Device,
    ) -> Result<AnyEncoder<B>> {
        let given = match &self.begin {
            Parameters::Drawn => return Ok(drawn),
            Parameters::File(file) => {
                let given = drawn.clone().load_weights(file);
                given.map_err(AdaptedModelError::from)?
            }
            Parameters::Run(path) => {
                let (checkpoint, _, settings) = run_at(path)?;
                AnyEncoder::from_inner(settings.embedder::<B>(&checkpoint, path, device)?)
            }
        };
        let (own, other) = (drawn.architecture(), given.architecture());
        if matches!(self.begin, Parameters::File(_)) && own != other {
            return Err(failed!("the weights are of {other}, not of {own}"));
        }
        // What is trained and what is not is said by the network that was drawn.
        Ok(drawn.load_record(given.into_record()))
    }
}

/// The path from the root on; the path itself where the working directory is not known.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// True of two spellings of an absolute path. What is there no longer has one.
pub(super) fn is_same_place(path: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().ok();
    path == other || canonical(path).is_some_and(|place| canonical(other) == Some(place))
}

fn hash(file: &Path) -> Result<String> {
    sha256(file).map_err(|error| failed!("{}: {error}", file.display()))
}
