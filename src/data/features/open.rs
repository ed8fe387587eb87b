//! Files of features by the endings of their names.

use std::fs;
use std::path::Path;

#[cfg(feature = "parquet")]
use super::parquet_file;
use super::{FeatureRows, Features, csv_file, npy_file, npz_file, safetensors_file};
use crate::data::{DataError, Result};

/// Content of a file.
pub(super) enum Content {
    /// A tensor or an array a class.
    Classes(Features),
    /// Rows in their order, with a label each or with none.
    Rows(FeatureRows),
}

impl Content {
    pub(super) fn into_rows(self) -> FeatureRows {
        match self {
            Self::Classes(features) => features.into(),
            Self::Rows(rows) => rows,
        }
    }

    /// The classes, by the labels of a file if it is given.
    pub(super) fn into_features(self, labels: Option<&Path>) -> Result<Features> {
        match (self, labels) {
            (Self::Classes(features), None) => Ok(features),
            // A single array is a class only as long as nothing says otherwise.
            (Self::Classes(features), Some(file)) if features.classes() == 1 => {
                FeatureRows::from(features).unlabelled().with_labels_of(file)?.into_features()
            }
            (Self::Classes(_), Some(_)) => Err(DataError::LabelledTwice),
            (Self::Rows(rows), None) => rows.into_features(),
            (Self::Rows(rows), Some(file)) => rows.with_labels_of(file)?.into_features(),
        }
    }
}

/// Content of the file, by the ending of its name.
pub(super) fn content(path: &Path) -> Result<Content> {
    match extension(path) {
        Some("safetensors") => {
            let bytes = fs::read(path).map_err(DataError::read(path))?;
            safetensors_file::content(&bytes, path)
        }
        Some("npy") => Ok(Content::Rows(npy_file::read(path)?)),
        Some("npz") => npz_file::content(path),
        Some("csv") => Ok(Content::Rows(csv_file::read(path)?)),
        #[cfg(feature = "parquet")]
        Some("parquet") => Ok(Content::Rows(parquet_file::read(path)?)),
        _ => {
            let parquet = match cfg!(feature = "parquet") {
                true => ".parquet",
                false => "in a build with --features parquet .parquet",
            };
            let expected = vec![".safetensors", ".npy", ".npz", ".csv", parquet];
            Err(DataError::FeatureExtension { path: path.to_owned(), expected })
        }
    }
}

/// Runs `read`, and names the file `path` in its errors.
pub(super) fn within<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    read().map_err(|error| match error {
        whole @ (DataError::Damaged { .. }
        | DataError::Read { .. }
        | DataError::FeatureExtension { .. }) => whole,
        part => DataError::FeaturesIn { path: path.to_owned(), source: Box::new(part) },
    })
}

pub(super) fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}
