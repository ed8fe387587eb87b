//! Tests of methods over episodes.

use fewshot::learners::heads::AnyHead;
use fewshot::train::{FeatureEvaluation, FeatureTest};
use pyo3::prelude::*;

use crate::B;
use crate::compute::{check_signals, computed};
use crate::errors::{type_error, value_error};
use crate::head::{Head, parsed};
use crate::sampler::sampler;
use crate::settings::known;

/// Accuracy of a method over episodes, with its interval and protocol.
#[pyclass(frozen, module = "fewshot")]
pub(crate) struct Evaluation {
    evaluation: FeatureEvaluation,
    protocol: [usize; 3],
}

#[pymethods]
impl Evaluation {
    /// Mean accuracy over episodes, in percent.
    #[getter]
    fn accuracy(&self) -> f64 {
        self.evaluation.accuracy
    }

    /// Half-width of its 95 % interval over episodes, in percent.
    #[getter]
    fn ci95(&self) -> f64 {
        self.evaluation.ci95
    }

    #[getter]
    fn method(&self) -> &str {
        &self.evaluation.method
    }

    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        parsed(py, &self.evaluation.settings)
    }

    #[getter]
    fn ways(&self) -> usize {
        self.protocol[0]
    }

    #[getter]
    fn shots(&self) -> usize {
        self.protocol[1]
    }

    #[getter]
    fn queries(&self) -> usize {
        self.protocol[2]
    }

    #[getter]
    fn episodes(&self) -> usize {
        self.evaluation.episodes
    }

    #[getter]
    fn seed(&self) -> Option<u64> {
        self.evaluation.seed
    }

    /// True where all queries of an episode were seen together.
    #[getter]
    fn transductive(&self) -> bool {
        self.evaluation.transductive
    }

    #[getter]
    fn episodes_per_s(&self) -> f64 {
        self.evaluation.episodes_per_s
    }

    fn __str__(&self) -> String {
        self.evaluation.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Evaluation {}>", self.evaluation)
    }
}

#[pyfunction]
#[pyo3(signature = (
    features, method=None, ways=5, shots=1, episodes=10_000, seed=1, *, queries=15, labels=None
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn evaluate(
    py: Python<'_>,
    features: &Bound<'_, PyAny>,
    method: Option<&Bound<'_, PyAny>>,
    ways: usize,
    shots: usize,
    episodes: usize,
    seed: u64,
    queries: usize,
    labels: Option<&Bound<'_, PyAny>>,
) -> PyResult<Evaluation> {
    if episodes == 0 {
        return Err(value_error("episodes are 0: a test needs at least one"));
    }
    let protocol = [ways, shots, queries];
    let sampler = sampler(features, labels, protocol, seed)?;
    let head = match method {
        None => by_name("prototypes", &sampler)?,
        Some(method) => match (method.cast::<Head>(), method.extract::<&str>()) {
            (Ok(head), _) => head.get().made(sampler.features().length())?,
            (_, Ok(name)) => by_name(name, &sampler)?,
            _ => {
                return Err(type_error(format!(
                    "method is {}: it is a head or the name of one",
                    method.get_type().name()?
                )));
            }
        },
    };
    let test = FeatureTest::new(episodes);
    let evaluation = computed(py, move || {
        test.try_run(&head, &sampler, &Default::default(), &|_| check_signals())
    })??;
    Ok(Evaluation { evaluation, protocol })
}

/// The head of this name as the command makes it for these features.
fn by_name(name: &str, sampler: &fewshot::episode::FeatureSampler) -> PyResult<AnyHead<B>> {
    let head = AnyHead::for_features(known(name)?, sampler.features(), &Default::default());
    Ok(head.expect("the name is known"))
}
