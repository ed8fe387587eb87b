use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::micro_batches::MicroBatches;
use super::{Event, TrainError, print_lines};
use crate::optim::ParameterGroups;
use crate::parallel::{Communicator, Reduction};
use crate::precision::GradScalerConfig;

pub(super) struct Options {
    pub(super) steps: u64,
    pub(super) meta_batch: u64,
    pub(super) accumulate: u64,
    pub(super) micro_batch: Option<usize>,
    pub(super) reduction: Reduction,
    pub(super) scaler: Option<GradScalerConfig>,
    pub(super) clip_norm: Option<f64>,
    pub(super) groups: Option<ParameterGroups>,
    /// Decay of the average of weights.
    pub(super) average_decay: Option<f64>,
    pub(super) validate_every: u64,
    pub(super) patience: Option<u32>,
    pub(super) checkpoint_every: u64,
    pub(super) profile: bool,
    pub(super) read_every: Option<u64>,
    pub(super) folder: Option<Folder>,
    pub(super) settings: Value,
    pub(super) observer: Box<dyn FnMut(&Event)>,
    pub(super) interrupt: Arc<AtomicBool>,
    pub(super) communicator: Option<Arc<dyn Communicator>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            steps: 1000,
            meta_batch: 1,
            accumulate: 1,
            micro_batch: None,
            reduction: Reduction::Exact,
            scaler: None,
            clip_norm: None,
            groups: None,
            average_decay: None,
            validate_every: 100,
            patience: None,
            checkpoint_every: 50,
            profile: false,
            read_every: None,
            folder: None,
            settings: Value::Null,
            observer: Box::new(print_lines),
            interrupt: Arc::default(),
            communicator: None,
        }
    }
}

impl Options {
    /// Tasks of a step.
    pub(super) fn tasks(&self) -> u64 {
        self.meta_batch * self.accumulate
    }

    /// Micro-batches of a step, of one task each unless tasks have `equal_sizes`.
    pub(super) fn parts(
        &self,
        replicas: usize,
        equal_sizes: bool,
    ) -> Result<MicroBatches, TrainError> {
        let size = match self.micro_batch {
            size if equal_sizes => size,
            None | Some(1) => Some(1),
            Some(tasks) => return Err(TrainError::UnequalTasks { tasks }),
        };
        let count = |tasks| usize::try_from(tasks).unwrap_or(usize::MAX);
        let (tasks, accumulated) = (count(self.tasks()), count(self.accumulate));
        MicroBatches::new(tasks, accumulated, size, replicas)
    }

    pub(super) fn check(&self, validation: Option<usize>) -> Result<(), TrainError> {
        let counts = [
            ("the meta-batch", self.meta_batch),
            ("the meta-batches in a step", self.accumulate),
            ("the tasks in a micro-batch", self.micro_batch.map_or(1, |tasks| tasks as u64)),
            ("the steps between validations", self.validate_every),
            ("the steps between checkpoints", self.checkpoint_every),
            ("the steps between readings", self.read_every.unwrap_or(1)),
            ("the patience", self.patience.map_or(1, u64::from)),
            ("the validation", validation.map_or(1, |tasks| tasks as u64)),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TrainError::Zero(name));
        }
        if let Some(norm) = self.clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return Err(TrainError::ClipNorm(norm));
        }
        if let Some(decay) = self.average_decay.filter(|decay| !(0.0..1.0).contains(decay)) {
            return Err(TrainError::AverageDecay(decay));
        }
        let Self { steps, meta_batch, accumulate, .. } = *self;
        let tasks = steps.checked_mul(meta_batch).and_then(|tasks| tasks.checked_mul(accumulate));
        match tasks {
            Some(_) => Ok(()),
            None => Err(TrainError::TooManyEpisodes { steps, meta_batch, accumulate }),
        }
    }
}

/// Folder of a run.
#[derive(Clone, Debug)]
pub(super) enum Folder {
    New(PathBuf),
    Old(PathBuf),
}

impl Folder {
    pub(super) fn name(&self) -> String {
        match self {
            Self::New(folder) => format!("new {}", folder.display()),
            Self::Old(folder) => folder.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_several_sizes_are_parts_of_their_own() {
        let options = |micro_batch| Options { meta_batch: 4, micro_batch, ..Options::default() };
        assert_eq!(options(None).parts(1, true).unwrap().count(), 1);
        assert_eq!(options(Some(2)).parts(1, true).unwrap().count(), 2);
        assert_eq!(options(None).parts(1, false).unwrap().count(), 4);
        assert_eq!(options(Some(1)).parts(1, false).unwrap().count(), 4);
        let error = options(Some(2)).parts(1, false).unwrap_err();
        assert!(matches!(error, TrainError::UnequalTasks { tasks: 2 }), "{error}");
    }
}
