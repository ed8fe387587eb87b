use std::io;
use std::path::PathBuf;

use super::{CheckpointError, EvaluationError};
use crate::adapt::AdaptError;
use crate::data::DataError;
use crate::episode::EpisodeError;
use crate::hardware::HardwareError;
use crate::learners::Divergence;
use crate::parallel::ParallelError;
use crate::phase::Phase;
use crate::precision::{PrecisionError, ScaleError};

/// Reason for which training stopped before its end, or did not begin.
///
/// `step` counts the steps done where the text says "after step", and is the index of the step
/// otherwise; `folder` is the run folder with the last good state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum TrainError {
    /// No training episodes were given.
    #[error("a trainer needs training episodes")]
    NoEpisodes,
    /// More episodes than can be counted.
    #[error("{steps} steps of {accumulate} x {meta_batch} episodes are more than can be numbered")]
    TooManyEpisodes { steps: u64, meta_batch: u64, accumulate: u64 },
    /// Devices, counted over all processes, that would have nothing to do: a step has `parts`
    /// micro-batches.
    #[error(
        "{replicas} devices cannot share {tasks} tasks in {parts} parts: every one needs a part; a \
         larger meta-batch or smaller micro-batches have more"
    )]
    MoreReplicasThanTasks { replicas: usize, tasks: usize, parts: usize },
    /// Several tasks at once, of a source whose tasks differ in size.
    #[error("tasks of several sizes are learned from one by one, not {tasks} at once")]
    UnequalTasks { tasks: usize },
    /// A device that is named more than once.
    #[error("{device} is named twice: a device takes one share of the tasks")]
    SameDevice { device: String },
    /// Processes whose learners are no longer the same.
    #[error(
        "after step {step} the parameters of process {rank} are not those of process 0: the \
         processes do not compute alike; the last checkpoint is from before"
    )]
    Drift { rank: usize, step: u64 },
    /// Another process of the run failed.
    #[error("process {rank}: {reason}")]
    OtherProcess { rank: usize, reason: String },
    /// A limit of the gradient's norm that gradients cannot be clipped to.
    #[error("gradients cannot be clipped to a norm of {0}")]
    ClipNorm(f64),
    /// A decay by which weights cannot be averaged.
    #[error("weights are averaged with a decay from 0 to below 1, not {0}")]
    AverageDecay(f64),
    /// A run folder that another process works in.
    #[error("{} is in use by {by}", folder.display())]
    InUse { folder: PathBuf, by: String },
    /// A setting of zero that must be at least one.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A loss that is not a finite number, in the step whose first episode has the index `episode`.
    /// `divergence` is where the inner loop first had a value that was not finite, if it had one
    /// and the parameters of the step were still there when the loss was read.
    #[error(
        "the loss is {loss} at step {step}, in the episodes from {episode}{}; training stopped{}",
        inner_loop(divergence),
        state_in(folder)
    )]
    NonFiniteLoss {
        loss: f32,
        step: u64,
        episode: u64,
        divergence: Option<Divergence>,
        folder: Option<PathBuf>,
    },
    /// A validation that is not a finite number: adaptation diverged on some of its tasks.
    #[error("the validation after step {step} is {mean}; training stopped{}", state_in(folder))]
    NonFiniteValidation { mean: f64, step: u64, folder: Option<PathBuf> },
    /// Parameters that are no longer finite numbers.
    #[error(
        "parameters are no longer finite after step {step}; training stopped{}",
        state_in(folder)
    )]
    NonFiniteParameters { step: u64, folder: Option<PathBuf> },
    /// Gradients that are not finite numbers.
    #[error("the gradient is not finite at step {step}; training stopped{}", state_in(folder))]
    NonFiniteGradient { step: u64, folder: Option<PathBuf> },
    /// A device that failed. What was done since the last checkpoint is lost; that one is as it was.
    /// `step` is the index of the step under way in `phase`, or how many were done if none was.
    #[error("step {step}{}: {failure}; training stopped{}", during(phase), state_in(folder))]
    Device { step: u64, phase: Option<Phase>, failure: Box<HardwareError>, folder: Option<PathBuf> },
    /// Images of a step that could not be prepared.
    #[error(
        "the images of step {step} cannot be prepared: {reason}; training stopped{}",
        state_in(folder)
    )]
    Preparation { step: u64, reason: String, folder: Option<PathBuf> },
    /// The user asked to stop; everything up to here is saved.
    #[error("interrupted after step {step}")]
    Interrupted { step: u64 },
    /// A run folder that already holds a run.
    #[error("{} already holds a run or files of its names: resume it, or choose another folder", folder.display())]
    Occupied { folder: PathBuf },
    /// A run folder without a checkpoint to resume from.
    #[error("{} holds no checkpoint to resume from", folder.display())]
    NothingToResume { folder: PathBuf },
    /// A checkpoint made with other settings, of which `name` is the first that differs.
    #[error("{} was made with {name} {actual}, this run has {expected}", path.display())]
    OtherSettings { path: PathBuf, name: String, actual: String, expected: String },
    /// A learner that cannot be trained on the episodes.
    #[error(transparent)]
    Learner(#[from] AdaptError),
    /// Tasks that cannot be drawn as they were asked for.
    #[error(transparent)]
    Episodes(#[from] EpisodeError),
    /// Processes that do not work together.
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    /// A device that does not compute in what the learner's products are to be computed in.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// A loss scale that makes no sense, or fell too low.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// A device that cannot do what is asked of it, or not within its memory.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// Data of tasks that cannot be read, before a step was made.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Data of tasks that can no longer be read.
    #[error("after step {step}: {source}; training stopped{}", state_in(folder))]
    UnreadableTasks { step: u64, source: DataError, folder: Option<PathBuf> },
    /// A checkpoint that cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn inner_loop(divergence: &Option<Divergence>) -> String {
    match divergence {
        Some(Divergence { task, step }) => {
            format!(": task {task} diverged in its inner step {step}")
        }
        None => String::new(),
    }
}

fn during(phase: &Option<Phase>) -> String {
    phase.map_or(String::new(), |phase| format!(", {}", phase.name()))
}

fn state_in(folder: &Option<PathBuf>) -> String {
    match folder {
        Some(folder) => format!("; the last good state is in {}", folder.display()),
        None => String::new(),
    }
}

impl From<EvaluationError> for TrainError {
    fn from(error: EvaluationError) -> Self {
        match error {
            EvaluationError::Parallel(error) => error.into(),
            EvaluationError::Data(error) => error.into(),
        }
    }
}

impl TrainError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
