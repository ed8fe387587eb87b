//! The file of an adapted model: safetensors with the embeddings of every class, and the rest as JSON in the metadata.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use burn::tensor::backend::Backend;
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::calibration::Calibration;
use super::cross_validation::CrossValidation;
use super::examples::{check, classes};
use super::origin::BackboneOrigin;
use super::trained::Parameters;
use super::unfitted::{Thumbnail, UnfittedModel};
use super::{AdaptedModelError, EmbeddingSource, PretrainedBackbone, Result};
use crate::data::Features;
use crate::files;

/// Key of the metadata.
const KEY: &str = "fewshot_adapted";

/// Raised when older versions cannot read the files; a file has the lowest format that can hold its content.
const FORMAT: u32 = 3;

/// The format of files without the network's parameters.
const WITHOUT_PARAMETERS: u32 = 1;

/// The format of files with them.
const WITH_PARAMETERS: u32 = 2;

/// The format of files of models without a network.
const WITHOUT_NETWORK: u32 = 3;

/// All parameters of the network in one tensor, in rows as long as embeddings, padded with zeros: a version that does not
/// know it takes it for a class, and then refuses the file by its format.
const PARAMETERS: &str = "backbone/parameters";

/// Key of small pictures of examples; older versions ignore it.
const THUMBNAILS: &str = "fewshot_thumbnails";

/// Key of digests of the examples' files; older versions ignore it.
const DIGESTS: &str = "fewshot_digests";

/// Bytes of small pictures, at most: half of what the header of a safetensors file can hold.
const MOST_OF_THUMBNAILS: usize = 48 << 20;

/// Everything but tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Metadata {
    /// None of embeddings that another program has made.
    pub(super) backbone: Option<BackboneOrigin>,
    pub(super) method: String,
    pub(super) calibration: Calibration,
    #[serde(rename = "left_out")]
    pub(super) cross_validation: Option<CrossValidation>,
}

impl Metadata {
    /// A fault of the metadata of these examples, if there is one.
    fn fault(&self, examples: &Features) -> Option<String> {
        let cross_validation = self.cross_validation.as_ref();
        let fault = cross_validation.and_then(|validation| validation.fault(examples));
        fault.or_else(|| self.calibration.fault())
    }
}

/// Content of a file.
pub(super) struct Content {
    pub(super) metadata: Metadata,
    pub(super) examples: Features,
    /// Parameters of a network that was trained here.
    pub(super) parameters: Option<Parameters>,
    /// One of each example, where it is kept.
    pub(super) thumbnails: Vec<Option<Thumbnail>>,
    /// One of the file of each example, where it is known.
    pub(super) digests: Vec<Option<String>>,
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    metadata: T,
    /// Names and shapes of the network's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<Vec<(String, Vec<usize>)>>,
}

/// Source of the weights of a published network.
#[derive(Clone, Copy)]
pub(super) enum Weights<'a, B: Backend> {
    /// The place that the model notes, or the cache.
    Noted,
    /// This file.
    File(&'a Path),
    /// This network, which has them, if there is one.
    Loaded(Option<&'a PretrainedBackbone<B>>),
}

impl<'a, B: Backend> From<Option<&'a Path>> for Weights<'a, B> {
    fn from(file: Option<&'a Path>) -> Self {
        file.map_or(Self::Noted, Self::File)
    }
}

impl Content {
    pub(super) fn write(self, path: &Path) -> Result {
        let written = self.encode().and_then(|bytes| files::replace(path, &bytes));
        written.map_err(|source| AdaptedModelError::File { path: path.to_owned(), source })
    }

    /// The content of the file.
    pub(super) fn encode(self) -> io::Result<Vec<u8>> {
        let Self { metadata, mut examples, parameters, thumbnails, digests } = self;
        let mut format = metadata.backbone.as_ref().map_or(WITHOUT_NETWORK, |_| WITHOUT_PARAMETERS);
        let mut list = None;
        if let Some(parameters) = parameters {
            (format, list) = (WITH_PARAMETERS, Some(parameters.list));
            let mut values = parameters.values;
            values.resize(values.len().next_multiple_of(examples.length()), 0.0);
            let mut rows = classes(&examples);
            rows.push((PARAMETERS.to_owned(), values));
            examples = Features::new(examples.length(), rows).map_err(io::Error::other)?;
        }
        let text = serde_json::to_string(&Versioned { format, metadata, parameters: list })?;
        let created_by = concat!("fewshot ", env!("CARGO_PKG_VERSION"));
        let mut features =
            examples.with_metadata("created_by", created_by).with_metadata(KEY, text);
        if thumbnails.iter().any(Option::is_some) {
            features =
                features.with_metadata(THUMBNAILS, encoded(&thumbnails, MOST_OF_THUMBNAILS)?);
        }
        if digests.iter().any(Option::is_some) {
            let digests: Vec<_> = digests.into_iter().map(Option::unwrap_or_default).collect();
            features = features.with_metadata(DIGESTS, serde_json::to_string(&digests)?);
        }
        features.to_safetensors()
    }

    /// The examples with the network that embedded them, if there is one, with these weights if its own are not in the file `path`.
    pub(super) fn unfitted<B: Backend>(
        self,
        path: &Path,
        weights: Weights<'_, B>,
        device: &B::Device,
    ) -> Result<UnfittedModel<B>> {
        let source = match &self.metadata.backbone {
            None if matches!(weights, Weights::File(_)) => {
                return Err(AdaptedModelError::NoNetwork);
            }
            None => EmbeddingSource::OtherProgram(device.clone()),
            Some(origin) => {
                let backbone = self.backbone(origin, path, weights, device)?;
                self.check_length(&backbone, path)?;
                backbone.into()
            }
        };
        let Self { metadata, examples, thumbnails, digests, .. } = self;
        Ok(UnfittedModel { source, method: metadata.method, examples, thumbnails, digests })
    }

    /// Refuses a network whose embeddings have another length than the examples.
    fn check_length<B: Backend>(&self, backbone: &PretrainedBackbone<B>, path: &Path) -> Result {
        let (length, expected) = (self.examples.length(), backbone.features());
        if length == expected {
            return Ok(());
        }
        let origin = backbone.origin();
        let reason = format!(
            "is no adapted model: its embeddings have {length} values, those of {origin} {expected}"
        );
        Err(AdaptedModelError::NoModel { path: path.to_owned(), reason })
    }

    fn backbone<B: Backend>(
        &self,
        origin: &BackboneOrigin,
        path: &Path,
        weights: Weights<'_, B>,
        device: &B::Device,
    ) -> Result<PretrainedBackbone<B>> {
        let network = match origin {
            BackboneOrigin::Published(id) => {
                return match weights {
                    Weights::Noted => PretrainedBackbone::find(id, None, device),
                    Weights::File(file) => PretrainedBackbone::find(id, Some(file), device),
                    Weights::Loaded(Some(network)) => network.noted_as(id),
                    Weights::Loaded(None) => {
                        let (backbone, sha256) = (id.name.clone(), id.sha256.clone());
                        Err(AdaptedModelError::WeightsNeeded { backbone, sha256 })
                    }
                };
            }
            BackboneOrigin::Trained(_) if matches!(weights, Weights::File(_)) => {
                return Err(AdaptedModelError::OwnWeights { path: path.to_owned() });
            }
            BackboneOrigin::Trained(network) => network,
        };
        network.network.precision().check::<B>(device)?;
        let parameters = self.parameters.as_ref();
        let parameters = parameters.ok_or("it lacks the weights of its network".to_owned());
        let encoder = parameters.and_then(|of| network.restored::<B>(of, device));
        let encoder = encoder.map_err(|why| {
            let reason = format!("is no adapted model: {why}");
            AdaptedModelError::NoModel { path: path.to_owned(), reason }
        })?;
        Ok(PretrainedBackbone::trained(encoder, network.clone(), device))
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path)
            .map_err(|source| AdaptedModelError::File { path: path.to_owned(), source })?;
        Self::decode(&bytes, path)
    }

    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        Self::parse(bytes, path)
            .map_err(|reason| AdaptedModelError::NoModel { path: path.to_owned(), reason })
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let no_model = |error: &dyn std::fmt::Display| format!("is no adapted model: {error}");
        let features = || Features::from_safetensors(bytes, path).map_err(|error| no_model(&error));
        // The version first: tensors of a later one may be any.
        let header = SafeTensors::read_metadata(bytes).ok();
        let header = header.and_then(|(_, header)| header.metadata().clone());
        let entry = |key| header.as_ref().and_then(|header| header.get(key));
        let Some(text) = entry(KEY) else {
            features()?;
            return Err(no_model(&"it is a file of features"));
        };
        let broken = |error: serde_json::Error| no_model(&error);
        let Version { format } = serde_json::from_str(text).map_err(broken)?;
        if format > FORMAT {
            return Err(format!(
                "is an adapted model of a later version (format {format}, this one reads up to {FORMAT})"
            ));
        }
        let Versioned::<Metadata> { metadata, parameters, .. } =
            serde_json::from_str(text).map_err(broken)?;
        if metadata.backbone.is_none() && format < WITHOUT_NETWORK {
            return Err(no_model(&"it lacks its network"));
        }
        let all = features()?;
        let mut rows = classes(&all);
        let parameters = match parameters {
            None => None,
            Some(list) => {
                let place = rows.iter().position(|(name, _)| name == PARAMETERS);
                let place =
                    place.ok_or_else(|| no_model(&"it lacks the weights of its network"))?;
                Some(Parameters { list, values: rows.remove(place).1 })
            }
        };
        // Without the metadata, of which nothing is to be written again.
        let examples = Features::new(all.length(), rows).map_err(|error| no_model(&error))?;
        check(&examples).map_err(|error| no_model(&error))?;
        metadata.fault(&examples).map_or(Ok(()), |fault| Err(no_model(&fault)))?;
        let thumbnails = match entry(THUMBNAILS) {
            None => vec![None; examples.rows()],
            Some(text) => decoded(text)
                .filter(|thumbnails| thumbnails.len() == examples.rows())
                .ok_or_else(|| no_model(&"its small pictures do not read"))?,
        };
        let digests = match entry(DIGESTS) {
            None => vec![None; examples.rows()],
            Some(text) => serde_json::from_str::<Vec<String>>(text)
                .ok()
                .filter(|digests| digests.len() == examples.rows())
                .ok_or_else(|| no_model(&"the digests of its examples do not read"))?
                .into_iter()
                .map(|digest| Some(digest).filter(|digest| !digest.is_empty()))
                .collect(),
        };
        Ok(Self { metadata, examples, parameters, thumbnails, digests })
    }
}

impl<B: Backend> UnfittedModel<B> {
    /// Reads a model's file. The weights of a published network are those in the file `weights`, or
    /// what [`PretrainedBackbone::find`] finds. If there are several classes, the examples are
    /// those of all.
    ///
    /// # Errors
    /// The reasons of [`AdaptedModel::open_with_weights`](super::AdaptedModel::open_with_weights), but for the number
    /// of classes and the method, which are checked when the second class comes.
    pub fn open(
        path: impl AsRef<Path>,
        weights: Option<&Path>,
        device: &B::Device,
    ) -> Result<Self> {
        let path = path.as_ref();
        Content::read(path)?.unfitted(path, weights.into(), device)
    }

    /// Reads the content of a model's file, whose name is `name`. The weights of a published network are those of
    /// `network`; where the file has its own, `network` is of no account.
    ///
    /// # Errors
    /// When the content is no model or one of a later version, and when the network is another than the model's, or absent.
    pub fn decode(
        content: &[u8],
        name: impl AsRef<Path>,
        network: Option<&PretrainedBackbone<B>>,
        device: &B::Device,
    ) -> Result<Self> {
        let name = name.as_ref();
        Content::decode(content, name)?.unfitted(name, Weights::Loaded(network), device)
    }

    /// The content of the [file](Self::write).
    ///
    /// # Errors
    /// When there is more than a file can hold.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        self.content(Calibration::default(), None).encode()
    }

    /// Writes the file, whole or not at all. [`AdaptedModel::write`](super::AdaptedModel::write) has the calibration
    /// besides, and the result of cross-validation.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result {
        self.content(Calibration::default(), None).write(path.as_ref())
    }

    pub(super) fn content(
        &self,
        calibration: Calibration,
        cross_validation: Option<CrossValidation>,
    ) -> Content {
        let (backbone, method) = (self.source.origin(), self.method.clone());
        Content {
            metadata: Metadata { backbone, method, calibration, cross_validation },
            examples: self.examples.clone(),
            parameters: self.source.parameters(),
            thumbnails: self.thumbnails.clone(),
            digests: self.digests.clone(),
        }
    }
}

/// A JSON array of small pictures in base64; a missing one, or one for which there is no room, is an empty string.
fn encoded(thumbnails: &[Option<Thumbnail>], mut room: usize) -> io::Result<String> {
    let each = thumbnails.iter().map(|thumbnail| {
        let text = thumbnail.as_deref().map(|bytes| STANDARD.encode(bytes)).unwrap_or_default();
        let fits = room.checked_sub(text.len());
        room = fits.unwrap_or(0);
        fits.map_or(String::new(), |_| text)
    });
    Ok(serde_json::to_string(&each.collect::<Vec<_>>())?)
}

fn decoded(text: &str) -> Option<Vec<Option<Thumbnail>>> {
    let each: Vec<String> = serde_json::from_str(text).ok()?;
    let decode = |text: String| {
        let bytes = STANDARD.decode(text).ok()?;
        Some((!bytes.is_empty()).then(|| Thumbnail::from(bytes)))
    };
    each.into_iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of two classes on a small network of its own, as it is in a file.
    #[cfg(feature = "flex")]
    fn own_model(folder: &Path) -> Features {
        use crate::adapted::{AdaptedModel, TrainedNetwork};
        use burn::backend::Flex;
        use fewshot_models::Conv4Config;

        let device = Default::default();
        let config = Conv4Config::new([3, 16, 16]).with_channels(2).with_blocks(4).with_context(1);
        let network = config.init::<Flex>(&device);
        let network = PretrainedBackbone::trained(network, TrainedNetwork::new(config), &device);
        let examples =
            [("a".into(), vec![1.0, 0.0, 1.0, 0.1]), ("b".into(), vec![0.0, 1.0, 0.1, 1.0])];
        let examples = Features::new(2, examples).unwrap();
        let file = folder.join("model.safetensors");
        AdaptedModel::adapt(network, "prototypes", examples).unwrap().write(&file).unwrap();
        Features::open(file).unwrap()
    }

    /// Pointers to all numbers in a value, and to what may be one.
    fn numbers(value: &serde_json::Value, at: &str, pointers: &mut Vec<String>) {
        match value {
            serde_json::Value::Number(_) | serde_json::Value::Null => pointers.push(at.to_owned()),
            serde_json::Value::Array(each) => {
                each.iter()
                    .enumerate()
                    .for_each(|(i, of)| numbers(of, &format!("{at}/{i}"), pointers));
            }
            serde_json::Value::Object(each) => {
                each.iter().for_each(|(key, of)| numbers(of, &format!("{at}/{key}"), pointers));
            }
            _ => {}
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn a_changed_number_is_an_error_or_a_model_that_predicts() {
        use crate::adapted::AdaptedModel;
        use crate::data::Picture;
        use burn::backend::Flex;
        use serde_json::json;

        let folder = tempfile::tempdir().unwrap();
        let whole = own_model(folder.path());
        let header: serde_json::Value = serde_json::from_str(&whole.metadata()[KEY]).unwrap();
        let path = folder.path().join("changed.fewshot");
        let picture = Picture::from_rgb(2, 1, vec![255, 0, 0, 0, 0, 255]).unwrap();
        let open = |header: &serde_json::Value| {
            let changed = whole.clone().with_metadata(KEY, header.to_string());
            fs::write(&path, changed.to_safetensors().unwrap()).unwrap();
            AdaptedModel::<Flex>::open(&path, &Default::default())
        };
        let mut pointers = Vec::new();
        numbers(&header, "", &mut pointers);
        assert!(pointers.len() > 40, "{pointers:?}");
        let values = [
            json!(-1),
            json!(0),
            json!(1),
            json!(1_u64 << 31),
            json!(1_u64 << 32),
            json!(100_000),
            json!(1_u64 << 63),
            json!(u64::MAX),
            json!(1e300),
            json!(null),
            json!("x"),
        ];
        for pointer in &pointers {
            for value in &values {
                let mut changed = header.clone();
                *changed.pointer_mut(pointer).unwrap() = value.clone();
                if let Ok(model) = open(&changed) {
                    if let Ok(predictions) = model.predict(std::slice::from_ref(&picture)) {
                        let probability = predictions[0].probability();
                        assert!(probability.is_finite(), "{pointer} {value}");
                    }
                    if let Some(validation) = model.cross_validation() {
                        assert!(validation.accuracy().is_finite(), "{pointer} {value}");
                    }
                }
            }
        }
        let refused = |pointer: &str, value: serde_json::Value, part: &str| {
            let mut changed = header.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            let error = open(&changed).err().expect(pointer).to_string();
            assert!(
                error.contains("changed.fewshot is no adapted model") && error.contains(part),
                "{error}"
            );
        };
        let conv4 = |field: &str| format!("/backbone/conv4/{field}");
        for size in [1_u64 << 32, 1 << 63] {
            refused(&conv4("image/1"), json!(size), "at most 268435456 values");
            refused(&conv4("channels"), json!(size), "at most 268435456 values");
        }
        refused(&conv4("image/1"), json!(100_000), "its embeddings have 2 values");
        refused(&conv4("channels"), json!(100_000), "of which it holds");
        for size in [100_000, 1_u64 << 32, 1 << 63] {
            refused(&conv4("blocks"), json!(size), "at most 1000 blocks");
            refused(&conv4("context"), json!(size), "of which it holds");
        }
        refused(&conv4("image/1"), json!(64), "its embeddings have 2 values");
        refused("/calibration/temperature", json!(0), "its temperature is 0");
        refused("/left_out/confusion/0/1", json!(5), "7 examples of a, it holds 2");
        refused("/left_out/confusion", json!([[1]]), "not of its 2 classes");
        refused("/left_out/folds", json!(5), "4 examples were left out in 5 folds");
    }

    #[test]
    fn embeddings_that_are_not_finite_are_refused_with_class_and_row() {
        let parse = |value: f32| {
            let metadata = Metadata {
                backbone: None,
                method: "simpleshot".to_owned(),
                calibration: Calibration::default(),
                cross_validation: None,
            };
            let text = serde_json::to_string(&Versioned {
                format: WITHOUT_NETWORK,
                metadata,
                parameters: None,
            });
            let examples = [("a".to_owned(), vec![1.0]), ("b".to_owned(), vec![1.0, 7.0])];
            let file = Features::new(1, examples).unwrap().with_metadata(KEY, text.unwrap());
            let mut bytes = file.to_safetensors().unwrap();
            let place = bytes.windows(4).rposition(|four| four == 7.0_f32.to_le_bytes()).unwrap();
            bytes[place..][..4].copy_from_slice(&value.to_le_bytes());
            Content::parse(&bytes, Path::new("x")).map(|content| content.examples.rows())
        };
        assert_eq!(parse(-3.0), Ok(3));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let why = parse(value).unwrap_err();
            assert!(why.contains("row 1 of class b") && why.contains("not finite"), "{why}");
        }
        let why = parse(3e38).unwrap_err();
        assert!(why.contains("row 1 of class b has values up to 3e38"), "{why}");
    }

    #[test]
    fn a_model_with_a_network_is_written_as_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let written = folder.path().join("m.safetensors");
        for (name, format) in
            [("two_classes", WITH_PARAMETERS), ("without_network", WITHOUT_NETWORK)]
        {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/adapted");
            let bytes = fs::read(corpus.join(name)).unwrap();
            let before = Features::from_safetensors(&bytes, Path::new(name)).unwrap();
            Content::parse(&bytes, Path::new(name)).unwrap().write(&written).unwrap();
            assert_eq!(Features::open(&written).unwrap(), before, "{name}");
            let start = format!("{{\"format\":{format},\"backbone\":");
            assert!(before.metadata()[KEY].starts_with(&start), "{}", before.metadata()[KEY]);
        }
    }

    #[test]
    fn small_pictures_read_as_they_were_written_as_far_as_there_is_room() {
        let all = [Some(&[1, 2, 3][..]), None, Some(&[4; 30]), Some(&[5])];
        let all = all.map(|bytes| bytes.map(Thumbnail::from));
        let read = |room| decoded(&encoded(&all, room).unwrap()).unwrap();
        assert_eq!(read(1000), all);
        assert_eq!(read(4 + 40), [&all[..3], &[None]].concat());
        assert_eq!(read(4 + 39), [all[0].clone(), None, None, None]);
        for broken in ["", "[1]", "[\"?\"]", "{}"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_file_that_lacks_a_part_is_no_model() {
        let text = |more: &str| {
            let run = r#""shades":"kept","run":null"#;
            let conv4 = r#"{"image":[3,16,16],"channels":4,"blocks":4,"halve_every":1,"downsampling":"MaxPool","readout":"Flatten","context":0,"precision":"f32"}"#;
            // As files were before they had the folds.
            let calibration = r#""calibration":{"temperature":1.0,"known":null},"left_out":{"confusion":[[1,0],[0,1]]}"#;
            format!(
                r#"{{"backbone":{{"conv4":{conv4},{run}}},"method":"simpleshot",{calibration},{more}}}"#
            )
        };
        let written = |more: &str, thumbnails: &str| {
            let examples = [("a".to_owned(), vec![1.0]), ("b".to_owned(), vec![2.0])];
            let file = Features::new(1, examples).unwrap().with_metadata(KEY, text(more));
            file.with_metadata(THUMBNAILS, thumbnails).to_safetensors().unwrap()
        };
        let read = |file: &[u8]| {
            Content::parse(file, Path::new("x")).map(|content| content.examples.rows())
        };
        let parse = |more: &str, thumbnails: &str| read(&written(more, thumbnails));
        let (two, parameters) = (r#"["",""]"#, r#""format":2,"parameters":[["w",[1]]]"#);
        assert_eq!(parse(r#""format":1"#, two), Ok(2));
        assert!(parse(parameters, two).unwrap_err().contains("lacks the weights"));
        assert!(parse(r#""format":1"#, r#"[""]"#).unwrap_err().contains("do not read"));
        assert!(parse(r#""format":4"#, two).unwrap_err().contains("later version (format 4"));
        assert_eq!(parse(r#""format":3"#, two), Ok(2));
        let bare = text(r#""format":2"#).replace(r#""backbone""#, r#""spine""#);
        let bare =
            Features::new(1, [("a".to_owned(), vec![1.0])]).unwrap().with_metadata(KEY, bare);
        let why = read(&bare.to_safetensors().unwrap()).unwrap_err();
        assert!(why.contains("it lacks its network"), "{why}");
        let whole = written(r#""format":1"#, two);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
    }
}
