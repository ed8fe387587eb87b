//! Embeddings grouped by class.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fewshot::data::Features as ClassFeatures;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::Embeddings;
use crate::compute::computed;
use crate::errors::{exception, type_error, value_error};
use crate::labels;

/// Embeddings with the class of each: an array `[n, d]` and the labels `[n]` of its rows, whole numbers or text; or a
/// dictionary with an array `[n, d]` for each class. `base_mean` `[d]` is the mean of the base classes, by which some
/// methods centre.
///
/// Raises `ValueError` for wrong shapes and values that are not finite, `TypeError` for dtypes that are no numbers and
/// for absent labels.
#[pyclass(frozen, module = "fewshot")]
pub(crate) struct Features {
    pub(crate) features: Arc<ClassFeatures>,
}

#[pymethods]
impl Features {
    #[new]
    #[pyo3(signature = (embeddings, labels=None, *, base_mean=None))]
    fn new(
        embeddings: &Bound<'_, PyAny>,
        labels: Option<&Bound<'_, PyAny>>,
        base_mean: Option<Vec<f32>>,
    ) -> PyResult<Self> {
        let features = match (embeddings.cast::<PyDict>(), labels) {
            (Ok(classes), None) => by_class(classes)?,
            (Ok(_), Some(_)) => {
                return Err(type_error(
                    "labels are for an array of embeddings: a dictionary has its own",
                ));
            }
            (Err(_), Some(labels)) => labelled("embeddings", embeddings, labels)?,
            (Err(_), None) => {
                return Err(type_error(
                    "labels are needed with an array of embeddings, one for each row",
                ));
            }
        };
        let features = match base_mean {
            Some(mean) => features.with_base_mean(mean).map_err(exception)?,
            None => features,
        };
        Ok(Self { features: Arc::new(features) })
    }

    /// Features of a file of safetensors, NumPy or CSV, as `docs/features.md` describes them. `labels` is a file of text
    /// with a label a line, where the file has none.
    ///
    /// Raises `OSError` where a file cannot be read, `ValueError` where it is damaged.
    #[staticmethod]
    #[pyo3(signature = (path, labels=None))]
    fn open(py: Python<'_>, path: PathBuf, labels: Option<PathBuf>) -> PyResult<Self> {
        let features = computed(py, || ClassFeatures::open_with_labels(path, labels.as_deref()))?;
        Ok(Self { features: Arc::new(features.map_err(exception)?) })
    }

    /// Names of the classes, sorted.
    #[getter]
    fn classes(&self) -> Vec<String> {
        let name = |class| self.features.class_name(class).to_owned();
        (0..self.features.classes()).map(name).collect()
    }

    /// Numbers of embeddings and of the values of each.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.features.rows(), self.features.length())
    }

    fn __len__(&self) -> usize {
        self.features.rows()
    }

    fn __repr__(&self) -> String {
        let (rows, length) = self.shape();
        format!(
            "<Features of {} classes: {rows} embeddings of {length} values>",
            self.features.classes()
        )
    }
}

/// Features of a value that stands for them.
pub(crate) fn features(
    value: &Bound<'_, PyAny>,
    labels: Option<&Bound<'_, PyAny>>,
) -> PyResult<Arc<ClassFeatures>> {
    if let Ok(features) = value.cast::<Features>() {
        return match labels {
            None => Ok(features.get().features.clone()),
            Some(_) => {
                Err(type_error("labels are for an array of embeddings: Features have their own"))
            }
        };
    }
    Ok(Features::new(value, labels, None)?.features)
}

/// Rows of a class each.
pub(crate) fn labelled(
    name: &'static str,
    embeddings: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
) -> PyResult<ClassFeatures> {
    let embeddings = Embeddings::single_task(name, embeddings)?;
    let [_, rows, length] = embeddings.shape();
    let names = labels::names(labels, rows)?;
    let values = embeddings.to_vec()?;
    let mut classes = BTreeMap::<String, Vec<f32>>::new();
    for (name, row) in names.into_iter().zip(values.chunks_exact(length)) {
        classes.entry(name).or_default().extend(row);
    }
    ClassFeatures::new(length, classes).map_err(exception)
}

fn by_class(classes: &Bound<'_, PyDict>) -> PyResult<ClassFeatures> {
    let mut length = None;
    let mut rows = Vec::new();
    for (name, embeddings) in classes {
        let name = name.str()?.to_string();
        let embeddings = Embeddings::single_task("a class of embeddings", &embeddings)?;
        let [_, _, actual] = embeddings.shape();
        let expected = *length.get_or_insert(actual);
        if actual != expected {
            return Err(value_error(format!(
                "embeddings of class {name} have {actual} values, those of others {expected}"
            )));
        }
        rows.push((name, embeddings.to_vec()?));
    }
    ClassFeatures::new(length.unwrap_or(0), rows).map_err(exception)
}
