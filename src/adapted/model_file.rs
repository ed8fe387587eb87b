//! The file of an adapted model: safetensors with the embeddings of every class, and the rest as JSON in the metadata.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{AdaptedModelError, BackboneId, Calibration, LeftOut};
use crate::data::Features;
use crate::files;

/// Where the metadata has what is noted.
const KEY: &str = "fewshot_adapted";

/// Raised when a file cannot be read by older versions.
const FORMAT: u32 = 1;

/// All but the embeddings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) backbone: BackboneId,
    pub(super) method: String,
    pub(super) calibration: Calibration,
    pub(super) left_out: Option<LeftOut>,
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
}

pub(super) fn write(
    path: &Path,
    noted: &Noted,
    examples: &Features,
) -> Result<(), AdaptedModelError> {
    let noted = serde_json::to_string(&Versioned { format: FORMAT, noted });
    let written = noted.map_err(std::io::Error::other).and_then(|noted| {
        let created_by = concat!("fewshot ", env!("CARGO_PKG_VERSION"));
        let features = examples.clone().with_metadata("created_by", created_by);
        files::replace(path, &features.with_metadata(KEY, noted).to_safetensors()?)
    });
    written.map_err(|source| AdaptedModelError::File { path: path.to_owned(), source })
}

pub(super) fn read(path: &Path) -> Result<(Noted, Features), AdaptedModelError> {
    let no_model = |reason: String| AdaptedModelError::NoModel { path: path.to_owned(), reason };
    let bytes = fs::read(path)
        .map_err(|source| AdaptedModelError::File { path: path.to_owned(), source })?;
    let examples = Features::from_safetensors(&bytes, path)
        .map_err(|error| no_model(format!("is no adapted model: {error}")))?;
    let noted = examples.metadata().get(KEY);
    let noted =
        noted.ok_or_else(|| no_model("is no adapted model, but a file of features".into()))?;
    let broken = |error: serde_json::Error| no_model(format!("is no adapted model: {error}"));
    let Version { format } = serde_json::from_str(noted).map_err(broken)?;
    if format > FORMAT {
        return Err(no_model(format!(
            "is an adapted model of a later version (format {format}, this one reads up to {FORMAT})"
        )));
    }
    let Versioned { noted, .. } = serde_json::from_str(noted).map_err(broken)?;
    Ok((noted, examples))
}
