use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};

use super::metrics::Line;
use super::{StepMetrics, ValidationMetrics, curves};
use crate::episode::Measure;

const FILES: [&str; 2] = ["config.json", "metrics.jsonl"];

/// Steps over which a mean loss and a mean accuracy are taken.
const RECENT: u64 = 100;

/// History of a run, as its [folder](super::RunFolder) tells it. The folder is only read.
///
/// A run under way writes its steps with its checkpoints, so steps made since the last checkpoint
/// are not known yet.
#[derive(Clone, Debug)]
pub struct RunHistory {
    folder: PathBuf,
    config: Map<String, Value>,
    steps: Vec<StepMetrics>,
    validations: Vec<ValidationMetrics>,
    running: bool,
    written: SystemTime,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A process works in its folder.
    Running,
    /// All steps are made, or validations no longer improved.
    Done,
    /// It was interrupted, killed or failed, and can be resumed.
    Stopped,
}

/// Reason for which a run cannot be read.
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

    /// The folder, as an absolute path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of the folder.
    pub fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or(self.folder.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// When metrics were last written.
    pub fn written(&self) -> SystemTime {
        self.written
    }

    /// All of `config.json`; the [settings](super::MetaTrainer::settings) that the trainer was given are its
    /// field `user`.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// The steps made.
    pub fn steps(&self) -> &[StepMetrics] {
        &self.steps
    }

    /// The validations.
    pub fn validations(&self) -> &[ValidationMetrics] {
        &self.validations
    }

    /// Number of steps made.
    pub fn steps_done(&self) -> u64 {
        self.steps.last().map_or(0, |metrics| metrics.step)
    }

    /// Number of steps wanted, if the run has noted it.
    pub fn steps_wanted(&self) -> Option<u64> {
        self.config.get("steps")?.as_u64()
    }

    /// Where the run stands; `None` if nobody works in its folder and the steps wanted are not known.
    pub fn state(&self) -> Option<RunState> {
        if self.running {
            return Some(RunState::Running);
        }
        let all = self.steps_done() >= self.steps_wanted()?;
        Some(if all || self.exhausted() { RunState::Done } else { RunState::Stopped })
    }

    /// True if the last validations, as many as the trainer waits for, were no new best.
    fn exhausted(&self) -> bool {
        let patience = self.config.get("patience").and_then(Value::as_u64);
        let best = self.best_index().unwrap_or(0);
        patience.is_some_and(|patience| (self.validations.len() - best) as u64 > patience)
    }

    fn best_index(&self) -> Option<usize> {
        let mean = |index: usize| self.validations[index].validation.mean;
        let improves = self.measure()?;
        (0..self.validations.len()).reduce(|best, index| {
            if improves.improves(mean(index), mean(best)) { index } else { best }
        })
    }

    /// The best validation.
    pub fn best(&self) -> Option<&ValidationMetrics> {
        self.best_index().map(|index| &self.validations[index])
    }

    /// Figure of the tasks of the run; `None` before its first step is written.
    pub fn measure(&self) -> Option<Measure> {
        let validated = self.validations.first().map(|metrics| metrics.validation.measure);
        validated.or_else(|| match self.steps.first()?.accuracy {
            Some(_) => Some(Measure::Accuracy),
            None => Some(Measure::SquaredError),
        })
    }

    /// Seconds that its steps took, with validations and checkpoints between them.
    pub fn seconds(&self) -> f64 {
        seconds(&self.steps)
    }

    /// Seconds that the remaining steps will take at the mean time of the latest ones, which are enough
    /// of them to include validations in proportion; `None` if the run is done or has not begun, or
    /// its number of steps is unknown.
    pub fn seconds_left(&self) -> Option<f64> {
        if self.state()? == RunState::Done {
            return None;
        }
        let left = self.steps_wanted()?.saturating_sub(self.steps_done());
        let validation = self.config.get("validation").and_then(|it| it.get("every"));
        let recent = self.recent(validation.and_then(Value::as_u64).unwrap_or(0).max(RECENT));
        (!recent.is_empty()).then(|| seconds(recent) / recent.len() as f64 * left as f64)
    }

    /// Mean loss of the last 100 steps.
    pub fn mean_loss(&self) -> Option<f64> {
        mean(self.recent(RECENT).iter().map(|metrics| f64::from(metrics.loss)))
    }

    /// Mean accuracy of the last 100 steps, in percent; of a classifier alone.
    pub fn mean_accuracy(&self) -> Option<f64> {
        mean(self.recent(RECENT).iter().filter_map(|metrics| metrics.accuracy))
    }

    fn recent(&self, count: u64) -> &[StepMetrics] {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        &self.steps[self.steps.len().saturating_sub(count)..]
    }

    /// Training loss over steps; of a long run, means of neighbours, a few hundred points.
    pub fn loss_curve(&self) -> Vec<(f64, f64)> {
        curves::training(&self.steps, |metrics| Some(f64::from(metrics.loss)))
    }

    /// Means of validations over steps.
    pub fn validation_curve(&self) -> Vec<(f64, f64)> {
        curves::validation(&self.validations)
    }
}

fn seconds(steps: &[StepMetrics]) -> f64 {
    steps.iter().map(|metrics| metrics.phase_ms.total()).sum::<f64>() / 1e3
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The first file of a run that is not in `folder`.
fn missing(folder: &Path) -> Option<&'static str> {
    FILES.into_iter().find(|file| !folder.join(file).is_file())
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> RunHistoryError {
    let path = path.to_owned();
    move |source| RunHistoryError::Io { path, source }
}

/// True if a run holds the lock at `path`. The shared lock of this test does not look like a run to others who
/// ask.
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

#[cfg(test)]
mod tests;
