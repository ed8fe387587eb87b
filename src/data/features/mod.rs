mod csv_file;
mod labels;
mod npy_file;
mod npz_file;
mod numbers;
mod open;
#[cfg(feature = "parquet")]
mod parquet_file;
mod rows;
mod safetensors_file;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

pub use rows::FeatureRows;

use super::{DataError, Result};
use crate::files;

/// Embeddings grouped by class, which a network or another program made of pictures, texts, sounds or tables: classifiers
/// are learned from them and tested on them without the network.
///
/// Classes are in the order of their names and the rows of a class in that of the file, so that the
/// same features make the same episodes whatever kind of file they come from.
///
/// # Conventions
/// | file | what is in it |
/// |---|---|
/// | `.safetensors` | a tensor `[n, d]` a class, of `F32`, `F64`, `F16` or `BF16`; or a single one with the `n` labels of its rows as a JSON array of strings or whole numbers in the metadata, under `labels`; there also a JSON array as `base_mean`, if there is one, and whatever else |
/// | `.npy` | an array `[n, d]` of NumPy, of float16, float32 or float64, in either order of bytes and of axes; labels are in a [file beside it](Self::open_with_labels) |
/// | `.npz` | an array `[n, d]` a class; or `embeddings` `[n, d]` and maybe `labels` `[n]`, whole numbers or text, where other arrays are passed over |
/// | `.csv` | a row an example: a first line that names the columns, a column of labels, which is named `label` or `class` or is the only one that does not begin with a number, and a column for each value |
/// | `.parquet` | a row an example, with the columns `embedding` (a list of floats or doubles) and `class_name`, as easyfsl has them; with the feature `parquet` |
///
/// NumPy has no bfloat16. Pickled objects are refused, as is whatever is not finite.
///
/// # Example
/// ```
/// use fewshot::data::Features;
///
/// let classes = [("cat".into(), vec![1.0, 0.0, 0.9, 0.1]), ("dog".into(), vec![0.0, 1.0])];
/// let features = Features::new(2, classes)?.with_metadata("backbone", "conv4");
/// assert_eq!((features.examples(0), features.examples(1)), (2, 1));
/// assert_eq!(features.row(2), [0.0, 1.0]);
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("pets.safetensors");
/// features.write(&path)?;
/// assert_eq!(Features::open(&path)?, features);
/// # Ok::<(), fewshot::data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    classes: Vec<Class>,
    /// All rows, class after class.
    values: Vec<f32>,
    length: usize,
    base_mean: Option<Vec<f32>>,
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Class {
    name: String,
    rows: Range<usize>,
}

impl Features {
    /// Rows of `length` values, each class with its name and one row after the other.
    ///
    /// # Errors
    /// Without a class, where a class has no row or no whole number of rows, where two have one name, and
    /// where a value is not finite.
    pub fn new(
        length: usize,
        classes: impl IntoIterator<Item = (String, Vec<f32>)>,
    ) -> Result<Self> {
        let mut given: Vec<_> = classes.into_iter().collect();
        given.sort_by(|one, other| one.0.cmp(&other.0));
        let (mut classes, mut values) = (Vec::<Class>::new(), Vec::new());
        for (name, rows) in given {
            check_class(&name, &rows, length)?;
            let first = classes.last().map_or(0, |class| class.rows.end);
            if classes.last().is_some_and(|class| class.name == name) {
                return Err(DataError::TwoClasses { class: name });
            }
            classes.push(Class { name, rows: first..first + rows.len() / length });
            values.extend(rows);
        }
        if classes.is_empty() {
            return Err(DataError::NoFeatures);
        }
        let (base_mean, metadata) = (None, BTreeMap::new());
        Ok(Self { classes, values, length, base_mean, metadata })
    }

    /// With the mean row of the base classes, by which some methods centre.
    ///
    /// # Errors
    /// If it has another length than the rows, or a value that is not finite.
    pub fn with_base_mean(self, mean: Vec<f32>) -> Result<Self> {
        let what = "the base mean".to_owned();
        if mean.len() != self.length {
            return Err(DataError::FeatureLength {
                what,
                expected: self.length,
                actual: mean.len(),
            });
        }
        if !mean.iter().all(|value| value.is_finite()) {
            return Err(not_finite(what));
        }
        Ok(Self { base_mean: Some(mean), ..self })
    }

    /// With metadata on where the features come from, as the backbone or the run.
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, has no labels, or holds what [`new`](Self::new) refuses.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with_labels(path, None)
    }

    /// The same with the labels of the rows in a file of text, one a line, where the file of features has none: that of a
    /// single array or tensor, or of columns of numbers alone.
    ///
    /// # Errors
    /// The reasons of [`open`](Self::open), an empty label, another number of labels than of rows, and labels for a file that
    /// has its own.
    pub fn open_with_labels(path: impl AsRef<Path>, labels: Option<&Path>) -> Result<Self> {
        let path = path.as_ref();
        open::within(path, || open::content(path)?.into_features(labels))
    }

    /// Writes a `.safetensors` file, whole or not at all.
    ///
    /// # Errors
    /// When the name has another ending, or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result {
        let path = path.as_ref();
        if open::extension(path) != Some("safetensors") {
            let expected = vec![".safetensors"];
            return Err(DataError::FeatureExtension { path: path.to_owned(), expected });
        }
        let written = self.to_safetensors().and_then(|bytes| files::replace(path, &bytes));
        written.map_err(|source| DataError::Write { path: path.to_owned(), source })
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// The name of a class.
    ///
    /// # Panics
    /// Like all methods that take a class, if there is no class of this number.
    pub fn class_name(&self, class: usize) -> &str {
        &self.classes[class].name
    }

    /// Number of rows of a class, at least one.
    pub fn examples(&self, class: usize) -> usize {
        self.classes[class].rows.len()
    }

    /// Numbers of the rows of a class among those of all.
    pub fn rows_of(&self, class: usize) -> Range<usize> {
        self.classes[class].rows.clone()
    }

    /// The rows of a class, one after the other.
    pub(crate) fn class_values(&self, class: usize) -> &[f32] {
        let rows = self.rows_of(class);
        &self.values[rows.start * self.length..rows.end * self.length]
    }

    /// Number of rows of all classes.
    pub fn rows(&self) -> usize {
        self.values.len() / self.length
    }

    /// Values in a row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Shape `[c, h, w]` of the maps that rows are made of, by the metadata `maps` of their file, as `64x5x5`; rows are
    /// vectors otherwise, `[d, 1, 1]`.
    pub fn maps(&self) -> [usize; 3] {
        let shape = self.metadata.get("maps").and_then(|text| {
            let sizes = text.split('x').map(|size| size.parse().ok());
            <[usize; 3]>::try_from(sizes.collect::<Option<Vec<_>>>()?).ok()
        });
        let is_a_row = |maps: &[usize; 3]| maps.iter().product::<usize>() == self.length;
        shape.filter(is_a_row).unwrap_or([self.length, 1, 1])
    }

    /// A row.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.length..][..self.length]
    }

    /// All values, row after row and class after class.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All rows, `[rows, d]`.
    pub fn tensor<B: Backend>(&self, device: &B::Device) -> Tensor<B, 2> {
        let shape = [self.rows(), self.length];
        Tensor::from_data(TensorData::new(self.values.clone(), shape), device)
    }

    /// The mean of all rows; that of features of the base classes is what other features take as
    /// [`base_mean`](Self::base_mean).
    pub fn mean(&self) -> Vec<f32> {
        mean(&self.values, self.length)
    }

    /// The same features with a row taken away from each.
    ///
    /// # Panics
    /// When it has another length than the rows.
    pub fn centred(&self, by: &[f32]) -> Self {
        assert_eq!(by.len(), self.length, "features of a centre and of rows");
        let mut centred = self.clone();
        for row in centred.values.chunks_exact_mut(self.length) {
            row.iter_mut().zip(by).for_each(|(value, by)| *value -= by);
        }
        centred
    }

    /// The mean row of the base classes, if it is known.
    pub fn base_mean(&self) -> Option<&[f32]> {
        self.base_mean.as_deref()
    }

    /// Metadata on where the features come from.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}

/// The mean of rows of `length` values.
fn mean(values: &[f32], length: usize) -> Vec<f32> {
    let mut sums = vec![0.0; length];
    for row in values.chunks_exact(length) {
        sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
    }
    let rows = (values.len() / length) as f64;
    sums.iter().map(|sum| (sum / rows) as f32).collect()
}

/// The name of the metadata in a `.safetensors` file, which no tensor has.
const RESERVED: &str = "__metadata__";

fn check_class(name: &str, rows: &[f32], length: usize) -> Result {
    if name == RESERVED {
        return Err(DataError::NoFeaturesIn {
            name: format!("class {name}"),
            expected: "a class of another name",
            actual: "named as the metadata of safetensors".to_owned(),
        });
    }
    if rows.is_empty() || length == 0 {
        return Err(DataError::EmptyClass { class: name.to_owned(), expected: "features" });
    }
    if !rows.len().is_multiple_of(length) {
        let what = format!("class {name}");
        return Err(DataError::FeatureLength {
            what,
            expected: length,
            actual: rows.len() % length,
        });
    }
    match rows.iter().position(|value| !value.is_finite()) {
        Some(place) => Err(not_finite(format!("row {} of class {name}", place / length))),
        None => Ok(()),
    }
}

fn not_finite(name: String) -> DataError {
    DataError::NoFeaturesIn {
        name,
        expected: "finite numbers",
        actual: "NaN or infinite".to_owned(),
    }
}
