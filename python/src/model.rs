//! Adapted models.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fewshot::adapted::{self, EmbeddingSource};
use fewshot::data::{Features, Picture, class_name};
use fewshot::files::{self, Lock, LockError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::B;
use crate::arrays::Embeddings;
use crate::backbone::{Backbone, embedded, with_backbone};
use crate::compute::computed;
use crate::errors::{exception, value_error};
use crate::features::labelled;
use crate::pictures::{Given, Pictures};
use crate::prediction::Prediction;

type Model = adapted::AdaptedModel<B>;

/// A classifier of pictures or of embeddings, learned from a few of each class. Several threads may use it; a change that
/// fails leaves it as it was.
#[pyclass(frozen, module = "fewshot")]
pub(crate) struct AdaptedModel {
    state: Mutex<State>,
}

struct State {
    model: Model,
    file: Option<ModelFile>,
}

/// The file of a model, and the hash of its content when it was read or written.
struct ModelFile {
    path: PathBuf,
    sha256: String,
}

#[pymethods]
impl AdaptedModel {
    /// The model of a file of `fewshot adapt`. `weights` is the file of its network's weights where they are not found.
    ///
    /// Raises `OSError` where a file cannot be read, `ValueError` where it is no model, has a single class, or its weights
    /// are not found.
    #[staticmethod]
    #[pyo3(signature = (path, weights=None))]
    fn open(py: Python<'_>, path: PathBuf, weights: Option<PathBuf>) -> PyResult<Self> {
        computed(py, || {
            let sha256 = hash(&path)?;
            let weights = weights.as_deref();
            let model = Model::open_with_weights(&path, weights, &Default::default());
            let file = Some(ModelFile { path, sha256 });
            Ok(Self::new(model.map_err(exception)?, file))
        })?
    }

    /// A model of the pictures in a folder, with a folder for each class, by a `Backbone` or the name of one.
    ///
    /// Raises `ValueError` where there are fewer than two classes, pictures are broken, or the method is unknown.
    #[staticmethod]
    #[pyo3(signature = (backbone, folder, method="simpleshot"))]
    fn from_folder(backbone: &Bound<'_, PyAny>, folder: PathBuf, method: &str) -> PyResult<Self> {
        with_backbone(backbone, |network| {
            let network = network.backbone.clone();
            let model = computed(backbone.py(), || Model::from_folder(network, method, folder))?;
            Ok(Self::new(model.map_err(exception)?, None))
        })
    }

    /// A model of embeddings `[n, d]` with labels `[n]`: of those that `backbone` has made of pictures, or of those of another
    /// program, which takes no pictures.
    ///
    /// Raises the errors of `Features`, and `ValueError` where there are fewer than two classes or the method is unknown.
    #[staticmethod]
    #[pyo3(signature = (embeddings, labels, method="simpleshot", *, backbone=None))]
    fn from_embeddings(
        embeddings: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        method: &str,
        backbone: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let features = labelled("embeddings", embeddings, labels)?;
        let source = match backbone {
            None => EmbeddingSource::OtherProgram(Default::default()),
            Some(backbone) => with_backbone(backbone, |network| {
                let (expected, actual) = (network.backbone.features(), features.length());
                match actual == expected {
                    true => Ok(EmbeddingSource::Network(network.backbone.clone())),
                    false => Err(value_error(format!(
                        "embeddings have {actual} values, those of the network {expected}"
                    ))),
                }
            })?,
        };
        let py = embeddings.py();
        let model = computed(py, || Model::adapt_to_features(source, method, &features))?;
        Ok(Self::new(model.map_err(exception)?, None))
    }

    /// The classification of each picture. Pictures and errors are those of `Backbone.embed`; a model without a network raises
    /// `ValueError`.
    fn predict(&self, pictures: &Bound<'_, PyAny>) -> PyResult<Vec<Prediction>> {
        let py = pictures.py();
        let network = computed(py, || self.state().model.backbone().cloned())?;
        let network = network.ok_or_else(|| exception(adapted::AdaptedModelError::NoNetwork))?;
        let (rows, _) = embedded(&network, pictures)?;
        self.classified(py, &rows)
    }

    /// The classification of each embedding, `[n, d]` of the model's length.
    fn classify(&self, embeddings: &Bound<'_, PyAny>) -> PyResult<Vec<Prediction>> {
        let rows = self.rows(embeddings)?;
        self.classified(embeddings.py(), &rows)
    }

    /// Adds pictures to a class, maybe a new one; the number of examples that are new. Files whose content the class has, and
    /// pictures in memory whose embedding it has, add nothing.
    ///
    /// Pictures and errors are those of `Backbone.embed`.
    fn add(&self, name: &str, pictures: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (mut paths, mut decoded) = (Vec::new(), Vec::new());
        for given in Pictures::new(pictures)?.given()? {
            match given {
                Given::File(path) => paths.push(path),
                Given::Pixels(picture) => decoded.push(picture),
            }
        }
        self.change(pictures.py(), |model| with_examples(model, name, paths, &decoded))
    }

    /// Adds embeddings `[n, d]` to a class, maybe a new one; the number of rows that are new.
    fn add_embeddings(&self, name: &str, embeddings: &Bound<'_, PyAny>) -> PyResult<usize> {
        let rows = self.rows(embeddings)?;
        self.change(embeddings.py(), |model| {
            let length = model.examples().length();
            let name = class_name(name)?;
            model.with_features(&Features::new(length, [(name, rows)])?)
        })
    }

    /// Removes a class. Raises `ValueError` where there is none of this name, or fewer than two would be left.
    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        computed(py, || {
            let mut state = self.state();
            state.model = state.model.clone().without_class(name).map_err(exception)?;
            Ok(())
        })?
    }

    /// Writes the model, whole or not at all, by default to the file that it was opened from or saved to.
    ///
    /// Raises `ValueError` where that file has been changed since by somebody else, or another process is changing it, and
    /// `OSError` where it cannot be written.
    #[pyo3(signature = (path=None))]
    fn save(&self, py: Python<'_>, path: Option<PathBuf>) -> PyResult<()> {
        computed(py, || self.state().save(path))?
    }

    /// Names of the classes, sorted.
    #[getter]
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        computed(py, || self.state().model.class_names())
    }

    /// Number of examples of each class.
    #[getter]
    fn examples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = computed(py, || {
            let state = self.state();
            let examples = state.model.examples();
            let count = |class| (examples.class_name(class).to_owned(), examples.examples(class));
            (0..examples.classes()).map(count).collect::<Vec<_>>()
        })?;
        let examples = PyDict::new(py);
        for (name, count) in counted {
            examples.set_item(name, count)?;
        }
        Ok(examples)
    }

    /// Name of the method that the classes were learned by.
    #[getter]
    fn method(&self, py: Python<'_>) -> PyResult<String> {
        computed(py, || self.state().model.method().to_owned())
    }

    /// The network; `None` of a model of embeddings that another program has made.
    #[getter]
    fn backbone(&self, py: Python<'_>) -> PyResult<Option<Backbone>> {
        let backbone = computed(py, || self.state().model.backbone().cloned())?;
        Ok(backbone.map(|backbone| Backbone { backbone }))
    }

    /// Percent of the examples that are right when each is left out once; `None` where no class has two.
    #[getter]
    fn left_out_accuracy(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let accuracy = |state: &State| Some(state.model.cross_validation()?.accuracy());
        computed(py, || accuracy(&self.state()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        computed(py, || {
            let state = self.state();
            let model = &state.model;
            let (rows, classes) = (model.examples().rows(), model.examples().classes());
            let source = match model.backbone() {
                Some(network) => network.origin().to_string(),
                None => format!("embeddings of {} values", model.examples().length()),
            };
            format!(
                "<AdaptedModel of {classes} classes from {rows} examples by {} on {source}>",
                model.method()
            )
        })
    }
}

impl AdaptedModel {
    fn new(model: Model, file: Option<ModelFile>) -> Self {
        Self { state: Mutex::new(State { model, file }) }
    }

    /// Taken only while the interpreter's lock is not, for which its holder may wait.
    fn state(&self) -> MutexGuard<'_, State> {
        // A change is made of a clone, so that a panic leaves the model as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn classified(&self, py: Python<'_>, rows: &[f32]) -> PyResult<Vec<Prediction>> {
        let predictions = computed(py, || self.state().model.classify(rows))?;
        Ok(predictions.map_err(exception)?.into_iter().map(Prediction::from).collect())
    }

    /// Values of embeddings that have the model's length.
    fn rows(&self, embeddings: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
        let rows = Embeddings::single_task("embeddings", embeddings)?;
        let expected = computed(embeddings.py(), || self.state().model.examples().length())?;
        match rows.shape() {
            [_, _, actual] if actual == expected => rows.to_vec(),
            [_, _, actual] => {
                Err(exception(adapted::AdaptedModelError::OtherLength { expected, actual }))
            }
        }
    }

    /// Puts another model in place of this one, or changes nothing; the number of examples that it has more.
    fn change(
        &self,
        py: Python<'_>,
        change: impl FnOnce(Model) -> Result<Model, adapted::AdaptedModelError> + Send,
    ) -> PyResult<usize> {
        computed(py, || {
            let mut state = self.state();
            let before = state.model.examples().rows();
            state.model = change(state.model.clone()).map_err(exception)?;
            Ok(state.model.examples().rows() - before)
        })?
    }
}

impl State {
    /// Writes the model to `path`, or to its own file if nobody has changed that since.
    fn save(&mut self, path: Option<PathBuf>) -> PyResult<()> {
        let path = match (path, &self.file) {
            (Some(path), _) => path,
            (None, Some(file)) => file.path.clone(),
            (None, None) => {
                return Err(value_error("path is needed: the model has no file yet"));
            }
        };
        let shown_path = path.display();
        let _lock = Lock::beside(&path, "fewshot in Python").map_err(|error| match error {
            LockError::Held(by) => value_error(format!("{shown_path} is being changed by {by}")),
            LockError::Io(error) => file_error(&path, &error),
            error => exception(error),
        })?;
        if let Some(file) = self.file.as_ref().filter(|file| file.path == path)
            && path.exists()
            && hash(&path)? != file.sha256
        {
            return Err(value_error(format!(
                "{shown_path} has been changed since it was opened: open it again, or save to another path"
            )));
        }
        self.model.write(&path).map_err(exception)?;
        let sha256 = hash(&path)?;
        self.file = Some(ModelFile { path, sha256 });
        Ok(())
    }
}

/// The model with further examples of a class.
fn with_examples(
    model: Model,
    name: &str,
    paths: Vec<PathBuf>,
    decoded: &[Picture],
) -> Result<Model, adapted::AdaptedModelError> {
    let only_files = decoded.is_empty() && !paths.is_empty();
    let model =
        if paths.is_empty() { model } else { model.with_classes(&[(name.to_owned(), paths)])? };
    if only_files { Ok(model) } else { model.with_pictures(name, decoded) }
}

fn hash(path: &Path) -> PyResult<String> {
    files::sha256(path).map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &io::Error) -> PyErr {
    io::Error::new(error.kind(), format!("{}: {error}", path.display())).into()
}
