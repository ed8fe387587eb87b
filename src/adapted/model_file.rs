//! The file of an adapted model: safetensors with the embeddings of every class, and the rest as JSON in the metadata.

use std::fs;
use std::io;
use std::path::Path;

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::trained::Parameters;
use super::{AdaptedModelError, BackboneOrigin, Calibration, LeftOut, classes};
use crate::data::{DataError, Features};
use crate::files;

/// Where the metadata has what is noted.
const KEY: &str = "fewshot_adapted";

/// Raised where files cannot be read by older versions; a file has the lowest that tells all that is in it.
const FORMAT: u32 = 2;

/// The format of files without the network's parameters.
const WITHOUT_PARAMETERS: u32 = 1;

/// What names of tensors begin with that are not a class's.
pub(super) const RESERVED: &str = "backbone/";

/// The tensor of the network's parameters, one after the other, in rows as long as embeddings with zeros after the last: a
/// version that knows of none takes them for a class until it has read the format, and can say then what is the matter.
const PARAMETERS: &str = "backbone/parameters";

/// All but tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) backbone: BackboneOrigin,
    pub(super) method: String,
    pub(super) calibration: Calibration,
    pub(super) left_out: Option<LeftOut>,
}

/// What a file holds.
pub(super) struct Content {
    pub(super) noted: Noted,
    pub(super) examples: Features,
    /// Of a network that was trained here.
    pub(super) parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    noted: T,
    /// Names and shapes of the network's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<Vec<(String, Vec<usize>)>>,
}

impl Content {
    pub(super) fn write(self, path: &Path) -> Result<(), AdaptedModelError> {
        let Self { noted, mut examples, parameters } = self;
        let (mut format, mut list) = (WITHOUT_PARAMETERS, None);
        if let Some(parameters) = parameters {
            (format, list) = (FORMAT, Some(parameters.list));
            examples = with_rows(&examples, parameters.values)?;
        }
        let noted = serde_json::to_string(&Versioned { format, noted, parameters: list });
        let written = noted.map_err(io::Error::other).and_then(|noted| {
            let created_by = concat!("fewshot ", env!("CARGO_PKG_VERSION"));
            let features = examples.with_metadata("created_by", created_by);
            files::replace(path, &features.with_metadata(KEY, noted).to_safetensors()?)
        });
        written.map_err(|source| AdaptedModelError::File { path: path.to_owned(), source })
    }

    pub(super) fn read(path: &Path) -> Result<Self, AdaptedModelError> {
        let bytes = fs::read(path)
            .map_err(|source| AdaptedModelError::File { path: path.to_owned(), source })?;
        Self::parse(&bytes, path)
            .map_err(|reason| AdaptedModelError::NoModel { path: path.to_owned(), reason })
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let no_model = |error: &dyn std::fmt::Display| format!("is no adapted model: {error}");
        let features = || Features::from_safetensors(bytes, path).map_err(|error| no_model(&error));
        // The version first: tensors of a later one may be any.
        let metadata = SafeTensors::read_metadata(bytes).ok();
        let metadata = metadata.and_then(|(_, header)| header.metadata().clone());
        let Some(noted) = metadata.as_ref().and_then(|metadata| metadata.get(KEY)) else {
            features()?;
            return Err(no_model(&"it is a file of features"));
        };
        let broken = |error: serde_json::Error| no_model(&error);
        let Version { format } = serde_json::from_str(noted).map_err(broken)?;
        if format > FORMAT {
            return Err(format!(
                "is an adapted model of a later version (format {format}, this one reads up to {FORMAT})"
            ));
        }
        let Versioned { noted, parameters, .. } = serde_json::from_str(noted).map_err(broken)?;
        let examples = features()?;
        match parameters {
            None => Ok(Self { noted, examples, parameters: None }),
            Some(list) => {
                let (examples, values) = without_rows(&examples)
                    .ok_or_else(|| no_model(&"it lacks the weights of its network"))?;
                Ok(Self { noted, examples, parameters: Some(Parameters { list, values }) })
            }
        }
    }
}

fn with_rows(examples: &Features, mut values: Vec<f32>) -> Result<Features, DataError> {
    values.resize(values.len().next_multiple_of(examples.length()), 0.0);
    let mut rows = classes(examples);
    rows.push((PARAMETERS.to_owned(), values));
    Features::new(examples.length(), rows)
}

fn without_rows(examples: &Features) -> Option<(Features, Vec<f32>)> {
    let mut rows = classes(examples);
    let place = rows.iter().position(|(name, _)| name == PARAMETERS)?;
    let (_, values) = rows.remove(place);
    Some((Features::new(examples.length(), rows).ok()?, values))
}
