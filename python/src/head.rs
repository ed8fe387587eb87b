//! Heads over embeddings.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use fewshot::learners::heads::{AnyHead, EmbeddedSupport, Head as _};
use numpy::{PyArray1, PyArray3, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use rayon::prelude::*;
use serde_json::{Map, Value};

use crate::B;
use crate::arrays::{Embeddings, shape_text};
use crate::compute::computed;
use crate::errors::value_error;
use crate::labels::Labels;
use crate::settings;

/// A classifier over embeddings, by its name and settings; `fewshot.heads` has a class for each.
#[pyclass(frozen, subclass, module = "fewshot.heads")]
pub(crate) struct Head {
    name: &'static str,
    settings: Map<String, Value>,
    /// Shape `[c, h, w]` of the maps that embeddings are made of.
    maps: Option<[usize; 3]>,
}

/// Arguments by which the constructor makes a head again: its name, settings and maps.
type Arguments<'py> = (&'static str, Bound<'py, PyAny>, Option<[usize; 3]>);

/// Logits of queries with the classes that they are of.
struct Judged<'py> {
    classes: Bound<'py, PyAny>,
    /// All `[t, q, ways]` of them, or what was made of them.
    values: Vec<f32>,
    shape: [usize; 3],
    several_tasks: bool,
}

/// Most numbers in the part of tasks that a thread computes at a time: 512 KiB of float32, which a core's own cache holds
/// beside the result of an operation.
const GATHERED: usize = 1 << 17;

/// Function of logits that is returned.
#[derive(Clone, Copy)]
enum Scale {
    Logits,
    Probabilities,
}

#[pymethods]
impl Head {
    #[new]
    #[pyo3(signature = (name, settings=None, maps=None))]
    fn new(
        name: &str,
        settings: Option<&Bound<'_, PyDict>>,
        maps: Option<[usize; 3]>,
    ) -> PyResult<Self> {
        let name = settings::known(name)?;
        let settings = settings.map(object).transpose()?.unwrap_or_default();
        let head = Self { name, settings, maps };
        // Unknown settings and values of another type are refused here, those out of range when they are used.
        head.all_settings()?;
        Ok(head)
    }

    /// Name of the method, as of `fewshot eval --method`.
    #[getter]
    fn name(&self) -> &'static str {
        self.name
    }

    /// Settings as `fewshot eval --json` reports them.
    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        parsed(py, &self.all_settings()?)
    }

    /// True where predictions of a query depend on the other queries of its task.
    #[getter]
    fn transductive(&self) -> PyResult<bool> {
        Ok(self.made(self.any_length())?.transductive())
    }

    /// The class of each query: `[q]` in the dtype of the labels, or `[t, q]` of several tasks.
    ///
    /// `support` `[n, d]` and `queries` `[q, d]` are embeddings, `labels` `[n]` whole numbers or text; all three of several
    /// tasks with the same classes have the tasks first. Of a transductive head all queries of a task belong in one call.
    ///
    /// Raises `ValueError` for wrong shapes, values that are not finite and settings out of range, `TypeError` for dtypes
    /// that are no numbers.
    fn predict<'py>(
        &self,
        support: &Bound<'py, PyAny>,
        labels: &Bound<'py, PyAny>,
        queries: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Judged { classes, values, shape: [tasks, count, ways], several_tasks } =
            self.judged(support, labels, queries, Scale::Logits)?;
        let places = values.chunks_exact(ways).map(|logits| best(logits) as i64);
        let places = PyArray1::from_iter(support.py(), places);
        let predicted = classes.call_method1("take", (places,))?;
        match several_tasks {
            true => predicted.call_method1("reshape", (tasks, count)),
            false => Ok(predicted),
        }
    }

    /// Probability of each class, the softmax of the logits: float32 `[q, ways]`, or `[t, q, ways]` of several tasks.
    ///
    /// Classes are in the order of `numpy.unique(labels)`. Arguments and errors are those of `predict`.
    fn predict_proba<'py>(
        &self,
        support: &Bound<'py, PyAny>,
        labels: &Bound<'py, PyAny>,
        queries: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.judged(support, labels, queries, Scale::Probabilities)?.into_array()
    }

    /// Logits of each class: float32 `[q, ways]`, or `[t, q, ways]` of several tasks.
    ///
    /// Classes are in the order of `numpy.unique(labels)`. Arguments and errors are those of `predict`.
    fn logits<'py>(
        &self,
        support: &Bound<'py, PyAny>,
        labels: &Bound<'py, PyAny>,
        queries: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.judged(support, labels, queries, Scale::Logits)?.into_array()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = slf.get_type().name()?;
        Ok(format!("<{name} {}>", slf.call_method0("_shown")?))
    }

    /// The text of the settings.
    fn _shown(&self) -> PyResult<String> {
        Ok(self.all_settings()?.to_string())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, Arguments<'py>)> {
        let head = slf.get();
        let given = parsed(slf.py(), &Value::Object(head.settings.clone()))?;
        Ok((slf.py().get_type::<Self>(), (head.name, given, head.maps)))
    }
}

impl Head {
    /// A length that embeddings may have: that of the maps, or any.
    fn any_length(&self) -> usize {
        self.maps.map_or(2, |maps| maps.iter().product())
    }

    /// The settings with their defaults.
    fn all_settings(&self) -> PyResult<Value> {
        Ok(self.made(self.any_length())?.settings())
    }

    /// The head for embeddings of this length.
    pub(crate) fn made(&self, length: usize) -> PyResult<AnyHead<B>> {
        let maps = self.maps.unwrap_or([length, 1, 1]);
        if maps.iter().product::<usize>() != length {
            return Err(value_error(format!(
                "embeddings have {length} values, maps of {} have {}",
                shape_text(&maps),
                maps.iter().product::<usize>()
            )));
        }
        settings::head(self.name, &self.settings, maps)
    }

    fn judged<'py>(
        &self,
        support: &Bound<'py, PyAny>,
        labels: &Bound<'py, PyAny>,
        queries: &Bound<'py, PyAny>,
        scale: Scale,
    ) -> PyResult<Judged<'py>> {
        let support = Embeddings::new("support", support)?;
        let queries = Embeddings::new("queries", queries)?;
        let several_tasks = support.several_tasks();
        let ([tasks, examples, length], [asked, count, actual]) =
            (support.shape(), queries.shape());
        if (tasks, several_tasks) != (asked, queries.several_tasks()) {
            return Err(value_error(format!(
                "queries are of {}, the support of {}",
                task_count(&queries),
                task_count(&support)
            )));
        }
        if actual != length {
            return Err(value_error(format!(
                "queries have {actual} values, those of the support have {length}"
            )));
        }
        let Labels { classes, places, ways } =
            Labels::new(labels, [tasks, examples], several_tasks)?;
        let head = self.made(length)?;
        let part = (GATHERED / ((examples + count) * length)).clamp(1, tasks);
        let support = support.parts(part).into_iter().zip(places.chunks(part * examples));
        let support = support.map(|(embeddings, places)| {
            let labels = Labels::tensor(places, [embeddings.dims()[0], examples]);
            EmbeddedSupport::new(embeddings, labels, ways)
        });
        let parts: Vec<_> = support.zip(queries.parts(part)).collect();
        let values = computed(classes.py(), move || values_of_parts(&head, parts, scale))?;
        let sound = |logits: &[f32]| {
            !logits.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY)
                && logits.iter().any(|logit| logit.is_finite())
        };
        if let Some(place) = values.chunks_exact(ways).position(|logits| !sound(logits)) {
            let (task, query) = (place / count, place % count);
            let place = match several_tasks {
                true => format!("query {query} of task {task}"),
                false => format!("query {query}"),
            };
            return Err(value_error(format!(
                "logits of {place} by {} are not finite: values of the embeddings are too large, or settings too extreme",
                self.name
            )));
        }
        Ok(Judged { classes, values, shape: [tasks, count, ways], several_tasks })
    }
}

impl<'py> Judged<'py> {
    /// `[q, ways]`, or `[t, q, ways]` of several tasks.
    fn into_array(self) -> PyResult<Bound<'py, PyAny>> {
        let Self { classes, values, shape: [tasks, count, ways], several_tasks } = self;
        let array = PyArray1::from_vec(classes.py(), values);
        Ok(match several_tasks {
            true => {
                let array: Bound<'_, PyArray3<f32>> = array.reshape([tasks, count, ways])?;
                array.into_any()
            }
            false => array.reshape([count, ways])?.into_any(),
        })
    }
}

/// Logits of the queries of each part, or their softmax, one after the other. Threads compute parts at the same time, each
/// with a clone of the head.
fn values_of_parts(
    head: &AnyHead<B>,
    parts: Vec<(EmbeddedSupport<B>, Tensor<B, 3>)>,
    scale: Scale,
) -> Vec<f32> {
    let values = |(head, support, queries): (AnyHead<B>, _, _)| -> Vec<f32> {
        let logits = head.logits(support, queries);
        let logits = match scale {
            Scale::Logits => logits,
            Scale::Probabilities => softmax(logits, 2),
        };
        logits.into_data().iter::<f32>().collect()
    };
    let several = parts.len() > 1;
    let parts = parts.into_iter().map(|(support, queries)| (head.clone(), support, queries));
    match several {
        true => parts.collect::<Vec<_>>().into_par_iter().flat_map_iter(values).collect(),
        false => parts.flat_map(values).collect(),
    }
}

/// The place of the largest logit, the first of several.
fn best(logits: &[f32]) -> usize {
    let better = |best, place| if logits[place] > logits[best] { place } else { best };
    (1..logits.len()).fold(0, better)
}

fn task_count(embeddings: &Embeddings<'_>) -> String {
    match (embeddings.several_tasks(), embeddings.shape()[0]) {
        (true, 1) => "1 task in a batch".to_owned(),
        (true, tasks) => format!("{tasks} tasks in a batch"),
        (false, _) => "a single task".to_owned(),
    }
}

/// A dictionary as an object of JSON.
fn object(dictionary: &Bound<'_, PyDict>) -> PyResult<Map<String, Value>> {
    let text = dictionary.py().import("json")?.call_method1("dumps", (dictionary,));
    let text = text
        .map_err(|error| value_error(format!("settings are numbers, text and lists: {error}")))?;
    let parsed = serde_json::from_str(text.extract::<&str>()?);
    parsed.map_err(|_| {
        value_error(format!("settings are finite numbers, text and lists, not {text}"))
    })
}

/// Python's value of JSON.
pub(crate) fn parsed<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}
