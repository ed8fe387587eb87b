use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::RunHistory;
use crate::train::metrics::Line;

const FILES: [&str; 2] = ["config.json", "metrics.jsonl"];

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum RunHistoryError {
    /// A folder that is not there.
    #[error("there is no folder {}", folder.display())]
    NoFolder { folder: PathBuf },
    /// A folder without a run.
    #[error("{} holds no run: it has no {missing}", folder.display())]
    NoRun { folder: PathBuf, missing: &'static str },
    /// Settings that do not read.
    #[error("{} is not the settings of a run: {reason}", path.display())]
    Config { path: PathBuf, reason: serde_json::Error },
    /// Metrics that do not read, in a line counted from 1.
    #[error("{}, line {line}: neither a step nor a validation", path.display())]
    Metrics { path: PathBuf, line: usize },
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl RunHistory {
    /// Reads the run in `folder`. A last line that was cut off, as in a run that was killed, is left out.
    ///
    /// # Errors
    /// When there is no such folder, it holds no run, or a file of the run cannot be read.
    pub fn read(folder: &Path) -> Result<Self, RunHistoryError> {
        if !folder.is_dir() {
            return Err(RunHistoryError::NoFolder { folder: folder.to_owned() });
        }
        if let Some(missing) = missing(folder) {
            return Err(RunHistoryError::NoRun { folder: folder.to_owned(), missing });
        }
        let [config, metrics] = FILES.map(|file| folder.join(file));
        let text = fs::read_to_string(&config).map_err(unreadable(&config))?;
        let config = serde_json::from_str(&text)
            .map_err(|reason| RunHistoryError::Config { path: config, reason })?;
        // Before the metrics: those of a run that ends meanwhile are then not taken for all there is.
        let running = is_locked(&folder.join("run.lock"))?;
        let written = fs::metadata(&metrics).and_then(|file| file.modified());
        let written = written.map_err(unreadable(&metrics))?;
        let (mut steps, mut validations) = (Vec::new(), Vec::new());
        for line in lines(&metrics)? {
            match line {
                Line::Step(metrics) => steps.push(metrics),
                Line::Validation(metrics) => validations.push(metrics),
            }
        }
        let folder = folder.canonicalize().map_err(unreadable(folder))?;
        Ok(Self { folder, config, steps, validations, running, written })
    }

    /// The folders in `folder` that hold a run, by their names.
    ///
    /// # Errors
    /// When there is no such folder or it cannot be read.
    pub fn folders(folder: &Path) -> Result<Vec<PathBuf>, RunHistoryError> {
        if !folder.is_dir() {
            return Err(RunHistoryError::NoFolder { folder: folder.to_owned() });
        }
        let entries = fs::read_dir(folder).map_err(unreadable(folder))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths.collect::<io::Result<Vec<_>>>().map_err(unreadable(folder))?;
        paths.retain(|path| missing(path).is_none());
        paths.sort();
        Ok(paths)
    }
}

/// The first file of a run that is not in `folder`.
fn missing(folder: &Path) -> Option<&'static str> {
    FILES.into_iter().find(|file| !folder.join(file).is_file())
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> RunHistoryError {
    let path = path.to_owned();
    move |source| RunHistoryError::Io { path, source }
}

/// Whether a run holds its lock. A shared lock tells and does not look like a run to others who ask.
fn is_locked(path: &Path) -> Result<bool, RunHistoryError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(unreadable(path)(source)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(unreadable(path)(source)),
    }
}

fn lines(path: &Path) -> Result<Vec<Line>, RunHistoryError> {
    let text = fs::read_to_string(path).map_err(unreadable(path))?;
    let mut lines = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(_) if !line.ends_with('\n') => break,
            Err(_) => {
                return Err(RunHistoryError::Metrics { path: path.to_owned(), line: index + 1 });
            }
        }
    }
    Ok(lines)
}
