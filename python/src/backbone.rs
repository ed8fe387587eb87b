//! Networks that embed pictures.

use std::path::PathBuf;

use fewshot::adapted::PretrainedBackbone;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::B;
use crate::compute::computed;
use crate::errors::{exception, type_error};
use crate::pictures::Pictures;

/// A network with its published weights.
#[pyclass(frozen, module = "fewshot")]
pub(crate) struct Backbone {
    pub(crate) backbone: PretrainedBackbone<B>,
}

#[pymethods]
impl Backbone {
    #[new]
    #[pyo3(signature = (name, weights=None))]
    fn new(py: Python<'_>, name: &str, weights: Option<PathBuf>) -> PyResult<Self> {
        let device = Default::default();
        let loaded = computed(py, || match weights {
            Some(weights) => PretrainedBackbone::load(name, weights, &device),
            None => PretrainedBackbone::cached(name, &device),
        })?;
        Ok(Self { backbone: loaded.map_err(exception)? })
    }

    fn embed<'py>(&self, pictures: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (rows, count) = embedded(&self.backbone, pictures)?;
        let length = self.backbone.features();
        PyArray1::from_vec(pictures.py(), rows).reshape([count, length])
    }

    /// Values of an embedding.
    #[getter]
    fn length(&self) -> usize {
        self.backbone.features()
    }

    fn __repr__(&self) -> String {
        format!("<Backbone {}>", self.backbone.origin())
    }
}

/// Embeds pictures by a network, or by the one of a name, maybe with `:FILE` of its weights.
#[pyfunction]
pub(crate) fn embed<'py>(
    backbone: &Bound<'py, PyAny>,
    pictures: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    with_backbone(backbone, |network| network.embed(pictures))
}

/// Calls `run` with the network that a value is or names.
pub(crate) fn with_backbone<T>(
    value: &Bound<'_, PyAny>,
    run: impl FnOnce(&Backbone) -> PyResult<T>,
) -> PyResult<T> {
    if let Ok(network) = value.cast::<Backbone>() {
        return run(network.get());
    }
    let Ok(named) = value.extract::<&str>() else {
        return Err(type_error(format!(
            "backbone is a {}: it is a Backbone or the name of one",
            value.get_type().name()?
        )));
    };
    let (name, weights) = match named.split_once(':') {
        Some((name, weights)) => (name, Some(weights.into())),
        None => (named, None),
    };
    run(&Backbone::new(value.py(), name, weights)?)
}

/// Embeddings one after the other, and their number.
pub(crate) fn embedded(
    backbone: &PretrainedBackbone<B>,
    pictures: &Bound<'_, PyAny>,
) -> PyResult<(Vec<f32>, usize)> {
    let mut pictures = Pictures::new(pictures)?;
    let (mut rows, mut count) = (Vec::new(), 0);
    loop {
        let batch = pictures.batch()?;
        if batch.is_empty() {
            return Ok((rows, count));
        }
        rows.extend(computed(pictures.py(), || backbone.embed(&batch).0)?);
        count += batch.len();
    }
}
