mod read;
#[cfg(test)]
mod tests;

pub use read::RunHistoryError;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{StepMetrics, ValidationMetrics, curves};
use crate::episode::Measure;

/// Steps over which a mean loss and a mean accuracy are taken.
const RECENT: u64 = 100;

/// What the [folder](super::RunFolder) of a run tells of it. The folder is only read.
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

/// Where a run stands.
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

impl RunHistory {
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

    /// Whether as many validations in a row as the trainer waits for were no new best.
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

    /// What the tasks of the run are judged by; `None` before its first step is written.
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
