//! Episodes of features.

use fewshot::episode::{ClassDraw, FeatureSampler, Protocol};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors::exception;
use crate::features::features;

/// Draws episodes: the one with index `i` depends on the seed and `i` alone.
#[pyclass(frozen, module = "fewshot")]
pub(crate) struct Sampler {
    sampler: FeatureSampler,
}

static EPISODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

#[pymethods]
impl Sampler {
    #[new]
    #[pyo3(signature = (features, ways=5, shots=1, queries=15, seed=1, *, labels=None))]
    fn new(
        features: &Bound<'_, PyAny>,
        ways: usize,
        shots: usize,
        queries: usize,
        seed: u64,
        labels: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let sampler = sampler(features, labels, [ways, shots, queries], seed)?;
        Ok(Self { sampler })
    }

    fn episode<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyAny>> {
        let classes = self.sampler.episode(index).classes;
        let (support, labels) = self.part(py, &classes, |class| &class.support)?;
        let (queries, query_labels) = self.part(py, &classes, |class| &class.query)?;
        let name = |draw: &ClassDraw| self.sampler.features().class_name(draw.class).to_owned();
        let names: Vec<_> = classes.iter().map(name).collect();
        let episode = EPISODE.import(py, "fewshot", "Episode")?;
        episode.call1((support, labels, queries, query_labels, names))
    }
}

/// Embeddings `[n, d]` and their labels `[n]`.
type Examples<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<i64>>);

impl Sampler {
    /// Part of an episode.
    fn part<'py>(
        &self,
        py: Python<'py>,
        classes: &[ClassDraw],
        examples: impl Fn(&ClassDraw) -> &[usize],
    ) -> PyResult<Examples<'py>> {
        let features = self.sampler.features();
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for (label, draw) in classes.iter().enumerate() {
            let first = features.rows_of(draw.class).start;
            for example in examples(draw) {
                rows.extend(features.row(first + example));
                labels.push(label as i64);
            }
        }
        let rows = PyArray1::from_vec(py, rows).reshape([labels.len(), features.length()])?;
        Ok((rows, PyArray1::from_vec(py, labels)))
    }
}

/// A sampler of features, or of what stands for them.
pub(crate) fn sampler(
    value: &Bound<'_, PyAny>,
    labels: Option<&Bound<'_, PyAny>>,
    [ways, shots, queries]: [usize; 3],
    seed: u64,
) -> PyResult<FeatureSampler> {
    let protocol = Protocol::new(ways, shots).with_queries(queries);
    FeatureSampler::new(features(value, labels)?, protocol, seed).map_err(exception)
}
