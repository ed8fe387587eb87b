//! Rows of features in the order of a file.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Features, labels, not_finite, open};
use crate::data::{DataError, Result};

/// Embeddings in the order of a file's rows, with the label of each where the file has them.
///
/// # Conventions
/// The kinds of files are those of [`Features`]. Of a file with a tensor or an array a class, the rows are those of the
/// classes in the order of their names.
///
/// # Example
/// ```
/// use fewshot::data::FeatureRows;
///
/// let rows = FeatureRows::new(2, vec![1.0, 0.0, 0.9, 0.1])?;
/// assert_eq!((rows.rows(), rows.row(1)), (2, &[0.9, 0.1][..]));
/// # Ok::<(), fewshot::data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureRows {
    length: usize,
    values: Vec<f32>,
    labels: Option<Vec<String>>,
    base_mean: Option<Vec<f32>>,
    metadata: BTreeMap<String, String>,
}

impl FeatureRows {
    /// Rows of `length` values without labels, one after the other.
    ///
    /// # Errors
    /// Without a value, where these are no whole rows, and where a value is not finite.
    pub fn new(length: usize, values: Vec<f32>) -> Result<Self> {
        if values.is_empty() || length == 0 {
            return Err(DataError::NoFeatures);
        }
        if !values.len().is_multiple_of(length) {
            let (what, actual) = ("the last row".to_owned(), values.len() % length);
            return Err(DataError::FeatureLength { what, expected: length, actual });
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(not_finite(format!("row {}, column {}", place / length, place % length)));
        }
        let (base_mean, metadata) = (None, BTreeMap::new());
        Ok(Self { length, values, labels: None, base_mean, metadata })
    }

    /// With the label of each row.
    ///
    /// # Errors
    /// When there are more or fewer labels than rows.
    pub fn with_labels(self, labels: Vec<String>) -> Result<Self> {
        match labels.len() == self.rows() {
            true => Ok(Self { labels: Some(labels), ..self }),
            false => Err(DataError::LabelCount { labels: labels.len(), rows: self.rows() }),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The reasons of [`Features::open`], but for labels, which need not be there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        open::within(path, || Ok(open::content(path)?.into_rows()))
    }

    /// The rows of each label.
    pub(super) fn into_features(self) -> Result<Features> {
        let Self { length, values, labels, base_mean, metadata } = self;
        let labels = labels.ok_or(DataError::NoLabels)?;
        let mut classes = BTreeMap::<String, Vec<f32>>::new();
        for (label, row) in labels.into_iter().zip(values.chunks_exact(length)) {
            classes.entry(label).or_default().extend(row);
        }
        Ok(Features { base_mean, metadata, ..Features::new(length, classes)? })
    }

    /// With the labels of a file, where there are none yet.
    pub(super) fn with_labels_of(self, file: &Path) -> Result<Self> {
        match self.labels {
            Some(_) => Err(DataError::LabelledTwice),
            None => self.with_labels(labels::read(file)?),
        }
    }

    /// Without labels.
    pub(super) fn unlabelled(self) -> Self {
        Self { labels: None, ..self }
    }

    /// Number of rows, at least one.
    pub fn rows(&self) -> usize {
        self.values.len() / self.length
    }

    /// Values in a row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A row.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.length..][..self.length]
    }

    /// All values, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The label of each row, if the file has them.
    pub fn labels(&self) -> Option<&[String]> {
        self.labels.as_deref()
    }

    /// The mean of all rows.
    pub fn mean(&self) -> Vec<f32> {
        super::mean(&self.values, self.length)
    }
}

impl From<Features> for FeatureRows {
    fn from(features: Features) -> Self {
        let label = |class| {
            let name = features.class_name(class).to_owned();
            std::iter::repeat_n(name, features.examples(class))
        };
        let labels = Some((0..features.classes()).flat_map(label).collect());
        let Features { values, length, base_mean, metadata, .. } = features;
        Self { length, values, labels, base_mean, metadata }
    }
}
