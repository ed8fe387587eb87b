//! Classifications of adapted models.

use fewshot::adapted;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Classification of a picture or an embedding.
#[pyclass(frozen, module = "fewshot")]
pub(crate) struct Prediction {
    prediction: adapted::Prediction,
}

impl From<adapted::Prediction> for Prediction {
    fn from(prediction: adapted::Prediction) -> Self {
        Self { prediction }
    }
}

#[pymethods]
impl Prediction {
    /// The likeliest class.
    #[getter]
    fn label(&self) -> &str {
        self.prediction.class()
    }

    /// Probability of the likeliest class.
    #[getter]
    fn probability(&self) -> f64 {
        self.prediction.probability()
    }

    /// Probability of every class, the likeliest first.
    #[getter]
    fn probabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let probabilities = PyDict::new(py);
        for (class, probability) in &self.prediction.classes {
            probabilities.set_item(class, probability)?;
        }
        Ok(probabilities)
    }

    /// Probability of a known class at all; `None` where no class of the model has two examples.
    #[getter]
    fn known(&self) -> Option<f64> {
        self.prediction.known
    }

    fn __repr__(&self) -> String {
        let (label, probability) = (self.label(), self.probability());
        format!("<Prediction {label} {probability:.3}>")
    }
}
