//! The models of a server: one file, or a folder of files that are opened when they are asked for.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use fewshot::data::{DataError, class_name};
use fewshot::hardware::{Bytes, ModelPool, PoolError};

use super::model::Model;
use crate::prelude::*;

/// The end of the names of models in a folder.
const EXTENSION: &str = "fewshot";

pub(super) enum Models {
    One { file: PathBuf, model: Arc<Model> },
    Folder(Folder),
}

/// A folder of models, of which those stay open that a budget of bytes has room for.
pub(super) struct Folder {
    path: PathBuf,
    pool: ModelPool<String, Model>,
    open: Opener,
}

/// Opens the file of a model.
pub(super) type Opener = Box<dyn Fn(&Path) -> Result<Model, OpenError> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Another process changes the model.
    #[error(transparent)]
    Locked(CliError),
    #[error(transparent)]
    Failed(#[from] CliError),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ModelsError {
    #[error("there are several models: those that /v1/models lists, each below /v1/models/NAME")]
    Unnamed,
    #[error(transparent)]
    Name(DataError),
    #[error("there is no model {0:?}")]
    NoModel(String),
    #[error("{name} cannot be opened: {error}")]
    Open { name: String, error: Box<PoolError<OpenError>> },
    #[error("{}: {error}", path.display())]
    Folder { path: PathBuf, error: std::io::Error },
}

impl Models {
    /// The model of this name; the only model has none in its requests, too.
    pub(super) fn get(&self, name: Option<&str>) -> Result<Arc<Model>, ModelsError> {
        match (self, name) {
            (Self::One { model, .. }, None) => Ok(model.clone()),
            (Self::One { file, model }, Some(name)) if stem(file) == name => Ok(model.clone()),
            (Self::One { .. }, Some(name)) => Err(ModelsError::NoModel(name.to_owned())),
            (Self::Folder(_), None) => Err(ModelsError::Unnamed),
            (Self::Folder(folder), Some(name)) => folder.get(name),
        }
    }

    /// Names of the models, and those that are open; of a folder also the bytes of these.
    pub(super) fn describe(&self) -> Result<Value, ModelsError> {
        let described = |name: &str, file: &Path, open: bool| {
            let file = file.file_name().map(|file| file.to_string_lossy());
            json!({"model": name, "file": file, "open": open})
        };
        Ok(match self {
            Self::One { file, .. } => json!({"models": [described(&stem(file), file, true)]}),
            Self::Folder(folder) => {
                let files = folder.files()?;
                let models = files.iter().map(|(name, file)| {
                    described(name, file, folder.pool.get(name.as_str()).is_some())
                });
                let models: Vec<_> = models.collect();
                let Bytes(bytes) = folder.pool.bytes();
                json!({"models": models, "bytes": bytes, "memory": folder.pool.budget().0})
            }
        })
    }
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

impl Folder {
    /// A folder with at least one model.
    pub(super) fn new(path: &Path, memory: Bytes, open: Opener) -> Result<Self> {
        let pool = ModelPool::new(memory, |model: &Model| model.bytes);
        let folder = Self { path: path.to_owned(), pool, open };
        let path = path.display();
        match folder.files() {
            Err(error) => Err(failed!("{error}")),
            Ok(files) if files.is_empty() => {
                Err(usage!("{path} is a folder without a model: there is no .{EXTENSION} in it"))
            }
            Ok(_) => Ok(folder),
        }
    }

    /// The models of the folder by name. Files whose names are not plain are none.
    fn files(&self) -> Result<BTreeMap<String, PathBuf>, ModelsError> {
        let failed = |error| ModelsError::Folder { path: self.path.clone(), error };
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            let name = file.file_stem().and_then(|stem| class_name(stem.to_str()?).ok());
            let is_model = file.extension().is_some_and(|end| end == EXTENSION) && file.is_file();
            if let (Some(name), true) = (name, is_model) {
                files.insert(name, file);
            }
        }
        Ok(files)
    }

    fn get(&self, name: &str) -> Result<Arc<Model>, ModelsError> {
        let name = class_name(name).map_err(ModelsError::Name)?;
        if let Some(model) = self.pool.get(&name) {
            if !model.has_ended() {
                return Ok(model);
            }
            self.pool.remove(&name);
        }
        // From the list, never a path that a request has made up.
        let file = self.files()?.remove(&name);
        let file = file.ok_or_else(|| ModelsError::NoModel(name.clone()))?;
        let opened = self.pool.get_or_load(&name, || (self.open)(&file));
        opened.map_err(|error| ModelsError::Open { name, error: error.into() })
    }
}
