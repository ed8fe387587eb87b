use std::process::ExitCode;

use fewshot::data::DataError;
use fewshot::episode::EpisodeError;
use fewshot::hardware::{Bytes, HardwareError, PlacementError};
use fewshot::train::{CheckpointError, TrainError};

/// What the command ends with, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The words of the command make no sense here.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error("{what}: {need} needed, {budget} there")]
    DoesNotFit { what: String, need: Bytes, budget: Bytes },
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Episode(#[from] EpisodeError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl CliError {
    /// 2 for what was asked wrongly or is not there, and 130 after an interruption, as shells have it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_)
            | Self::Hardware(
                HardwareError::Unknown { .. }
                | HardwareError::Unavailable { .. }
                | HardwareError::Preference { .. },
            )
            | Self::Episode(
                EpisodeError::Zero(_)
                | EpisodeError::Samples { .. }
                | EpisodeError::PatternLength { .. },
            ) => ExitCode::from(2),
            Self::Train(TrainError::Interrupted { .. }) => ExitCode::from(130),
            _ => ExitCode::FAILURE,
        }
    }
}
