use fewshot::adapted::AdaptedModelError;
use fewshot::data::DataError;
use fewshot::episode::EpisodeError;
use fewshot::export::ExportError;
use fewshot::hardware::HardwareError;
use fewshot::parallel::ParallelError;
use fewshot::plasticity::PlasticityError;
use fewshot::train::{CheckpointError, EvaluationError, RunHistoryError, TrainError};

pub(crate) type Result<T = (), E = CliError> = std::result::Result<T, E>;

/// Failures of the command, each told in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A wrong command line.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    #[error("{0}")]
    Failed(String),
    #[error("interrupted: the same command goes on")]
    Interrupted,
    #[error(transparent)]
    Adapted(#[from] AdaptedModelError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Episode(#[from] EpisodeError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Run(#[from] RunHistoryError),
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    #[error(transparent)]
    Plasticity(#[from] PlasticityError),
}

impl CliError {
    /// The exit code: 2 for what was asked wrongly or is not there, and 130 after an interruption, as
    /// shells have it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            // The data lacks something.
            Self::Episode(
                EpisodeError::NotEnoughClasses { .. }
                | EpisodeError::NotEnoughExamples { .. }
                | EpisodeError::NoQuery { .. }
                | EpisodeError::List { .. }
                | EpisodeError::ListLine { .. }
                | EpisodeError::Episode { .. },
            ) => 1,
            Self::Usage(_)
            | Self::Episode(_)
            | Self::Plasticity(_)
            | Self::Hardware(HardwareError::Unknown { .. } | HardwareError::Unavailable { .. })
            | Self::Adapted(
                AdaptedModelError::UnknownBackbone { .. }
                | AdaptedModelError::UnknownMethod { .. }
                | AdaptedModelError::UnknownClass { .. }
                | AdaptedModelError::NotCached { .. }
                | AdaptedModelError::NoDownload { .. }
                | AdaptedModelError::NoNetwork
                | AdaptedModelError::OwnWeights { .. },
            )
            | Self::Export(ExportError::Method { .. } | ExportError::NoNetwork)
            | Self::Train(TrainError::Episodes(_)) => 2,
            Self::Interrupted | Self::Train(TrainError::Interrupted { .. }) => 130,
            _ => 1,
        }
    }
}

/// [`CliError::Usage`] with formatted text.
macro_rules! usage {
    ($($text:tt)*) => { $crate::error::CliError::Usage(format!($($text)*)) };
}

/// [`CliError::Failed`] with formatted text.
macro_rules! failed {
    ($($text:tt)*) => { $crate::error::CliError::Failed(format!($($text)*)) };
}

pub(crate) use {failed, usage};
