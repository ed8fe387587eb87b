use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::metrics::Line;
use super::{Checkpoint, TrainError, curves};
use crate::files::{self, Lock, LockError};

const FILES: [&str; 5] = ["config.json", "metrics.jsonl", "curves.svg", "last.ckpt", "best.ckpt"];

/// Folder of a run: its settings, metrics and checkpoints.
///
/// | file | content |
/// |---|---|
/// | `config.json` | settings, protocol, seeds, steps wanted |
/// | `metrics.jsonl` | a line a training step and a line a validation |
/// | `curves.svg` | loss and accuracy over steps |
/// | `last.ckpt` | everything needed to go on |
/// | `best.ckpt` | the learner at its best validation |
#[derive(Debug)]
pub struct RunFolder {
    pub(super) path: PathBuf,
    /// Held as long as the run goes on; the system lets go of it when the process ends.
    _lock: Lock,
    metrics: BufWriter<File>,
    lines: Vec<Line>,
}

impl RunFolder {
    /// Makes `path` and begins a run in it.
    pub(super) fn create(path: impl Into<PathBuf>) -> Result<Self, TrainError> {
        let path = path.into();
        check_free(&path)?;
        fs::create_dir_all(&path).map_err(TrainError::io(&path))?;
        let lock = lock(&path)?;
        // Another process may have trained here meanwhile.
        check_free(&path)?;
        files::replace(&path.join("metrics.jsonl"), b"").map_err(TrainError::io(&path))?;
        Self::open(path, lock, Vec::new())
    }

    /// Opens a run whose checkpoint was made after `step` steps, and forgets what was measured
    /// later.
    pub(super) fn resume(path: impl Into<PathBuf>, step: u64) -> Result<Self, TrainError> {
        let path = path.into();
        let lock = lock(&path)?;
        let metrics = path.join("metrics.jsonl");
        let text = fs::read_to_string(&metrics).map_err(TrainError::io(&metrics))?;
        let lines = text.lines().map_while(|line| serde_json::from_str::<Line>(line).ok());
        let lines: Vec<_> = lines.take_while(|line| line.step() <= step).collect();
        let text: String = lines.iter().map(to_json_line).collect();
        files::replace(&metrics, text.as_bytes()).map_err(TrainError::io(&metrics))?;
        Self::open(path, lock, lines)
    }

    fn open(path: PathBuf, lock: Lock, lines: Vec<Line>) -> Result<Self, TrainError> {
        let metrics = path.join("metrics.jsonl");
        let file = OpenOptions::new().append(true).open(&metrics);
        let file = file.map_err(TrainError::io(&metrics))?;
        Ok(Self { path, _lock: lock, metrics: BufWriter::new(file), lines })
    }

    /// The checkpoint that a run in `folder` resumes from.
    pub fn last(folder: &Path) -> PathBuf {
        folder.join("last.ckpt")
    }

    /// The checkpoint of the learner that validated best in `folder`.
    pub fn best(folder: &Path) -> PathBuf {
        folder.join("best.ckpt")
    }

    pub(super) fn write_config(&self, config: &impl Serialize) -> Result<(), TrainError> {
        let path = self.path.join("config.json");
        let text = serde_json::to_string_pretty(config).expect("settings are plain data");
        files::replace(&path, (text + "\n").as_bytes()).map_err(TrainError::io(path))
    }

    pub(super) fn log(&mut self, line: Line) -> Result<(), TrainError> {
        let written = self.metrics.write_all(to_json_line(&line).as_bytes());
        self.lines.push(line);
        written.map_err(TrainError::io(self.path.join("metrics.jsonl")))
    }

    /// Metrics first: a checkpoint never knows more than they do.
    pub(super) fn write_last(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let path = self.path.join("metrics.jsonl");
        let flushed = self.metrics.flush().and_then(|()| self.metrics.get_ref().sync_data());
        flushed.map_err(TrainError::io(path))?;
        Ok(checkpoint.write(&Self::last(&self.path))?)
    }

    pub(super) fn draw_curves(&self) -> Result<(), TrainError> {
        let path = self.path.join("curves.svg");
        let drawing = curves::draw(&self.lines);
        files::replace(&path, drawing.as_bytes()).map_err(TrainError::io(path))
    }
}

/// Refuses a folder with files of a run's names, but for those of a run that was killed before its first checkpoint: it
/// has measured nothing, and cannot be resumed.
fn check_free(folder: &Path) -> Result<(), TrainError> {
    let exists = |name: &&str| folder.join(name).exists();
    let metrics = fs::metadata(folder.join(FILES[1]));
    let is_unbegun = metrics.is_ok_and(|file| file.len() == 0) && !FILES[2..].iter().any(exists);
    match !is_unbegun && FILES.iter().any(exists) {
        true => Err(TrainError::Occupied { folder: folder.to_owned() }),
        false => Ok(()),
    }
}

/// Two processes in one folder would overwrite each other's files.
fn lock(folder: &Path) -> Result<Lock, TrainError> {
    let path = folder.join("run.lock");
    Lock::take(&path, "fewshot train").map_err(|error| match error {
        LockError::Held(by) => TrainError::InUse { folder: folder.to_owned(), by },
        LockError::Io(source) => TrainError::Io { path, source },
    })
}

fn to_json_line(line: &Line) -> String {
    serde_json::to_string(line).expect("metrics are plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::PhaseTimes;
    use crate::train::{Progress, StepMetrics};

    fn line(step: u64) -> Line {
        Line::Step(StepMetrics {
            step,
            loss: 0.1,
            accuracy: Some(12.5),
            learning_rate: 1e-3,
            loss_scale: None,
            phase_ms: PhaseTimes::default(),
        })
    }

    #[test]
    fn resuming_forgets_what_was_measured_after_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(folder.path()).unwrap();
        (1..=5).for_each(|step| run.log(line(step)).unwrap());
        run.write_last(&Checkpoint::new(
            String::new(),
            serde_json::Value::Null,
            Progress::default(),
        ))
        .unwrap();
        let metrics = folder.path().join("metrics.jsonl");
        let mut text = fs::read_to_string(&metrics).unwrap();
        text.push_str("{\"step\":6,\"lo");
        fs::write(&metrics, text).unwrap();
        drop(run);
        let mut run = RunFolder::resume(folder.path(), 3).unwrap();
        run.log(line(4)).unwrap();
        drop(run);
        let expected: String = (1..=4).map(|step| to_json_line(&line(step))).collect();
        assert_eq!(fs::read_to_string(&metrics).unwrap(), expected);
    }

    #[test]
    fn a_run_that_was_killed_before_its_first_checkpoint_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::create(folder.path()).unwrap();
        run.write_config(&"settings").unwrap();
        drop(run);
        let mut run = RunFolder::create(folder.path()).unwrap();
        run.log(line(1)).unwrap();
        drop(run);
        let error = RunFolder::create(folder.path()).unwrap_err();
        assert!(matches!(error, TrainError::Occupied { .. }));
    }

    #[test]
    fn a_folder_with_a_run_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(folder.path()).unwrap();
        run.write_last(&Checkpoint::new(
            String::new(),
            serde_json::Value::Null,
            Progress::default(),
        ))
        .unwrap();
        let error = RunFolder::create(folder.path()).unwrap_err();
        assert!(matches!(error, TrainError::Occupied { .. }));
        let error = RunFolder::resume(folder.path(), 0).unwrap_err();
        assert!(matches!(error, TrainError::InUse { .. }));
        let foreign = tempfile::tempdir().unwrap();
        fs::write(foreign.path().join("config.json"), "{}").unwrap();
        let error = RunFolder::create(foreign.path()).unwrap_err();
        assert!(matches!(error, TrainError::Occupied { .. }));
    }
}
