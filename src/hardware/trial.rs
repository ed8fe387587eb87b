use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Bytes, HardwareError};

/// What one run of some work at some size took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialMeasure {
    /// The most memory it had in use at a time, above what was in use before.
    pub peak: Bytes,
    /// Steps that were run; none is no trial.
    pub steps: usize,
}

/// One run of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The size that was tried.
    pub size: usize,
    /// How it went.
    pub outcome: TrialOutcome,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// How a trial went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// Within the budget.
    Fits {
        /// What it took.
        peak: Bytes,
    },
    /// It ran, beyond the budget.
    TooBig {
        /// What it took.
        peak: Bytes,
    },
    /// The device could not give the memory.
    OutOfMemory {
        /// What was asked for last, where the device tells.
        asked: Option<Bytes>,
    },
}

impl TrialOutcome {
    /// What it took, if it ran to its end.
    pub fn peak(self) -> Option<Bytes> {
        match self {
            Self::Fits { peak } | Self::TooBig { peak } => Some(peak),
            Self::OutOfMemory { .. } => None,
        }
    }

    /// Whether it was within the budget.
    pub fn fits(self) -> bool {
        matches!(self, Self::Fits { .. })
    }

    /// From what a trial of `size` returned.
    ///
    /// # Errors
    /// Whatever went wrong but a lack of memory, and a trial without a step.
    pub(super) fn of(
        measure: Result<TrialMeasure, HardwareError>,
        size: usize,
        budget: Bytes,
    ) -> Result<Self, HardwareError> {
        match measure {
            Ok(TrialMeasure { steps: 0, .. }) => Err(HardwareError::NoSteps { size }),
            Ok(TrialMeasure { peak, .. }) if peak <= budget => Ok(Self::Fits { peak }),
            Ok(TrialMeasure { peak, .. }) => Ok(Self::TooBig { peak }),
            Err(HardwareError::OutOfMemory { asked, .. }) => Ok(Self::OutOfMemory { asked }),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, outcome, ms } = self;
        match outcome {
            TrialOutcome::Fits { peak } => write!(f, "{size}: {peak}, fits ({ms} ms)"),
            TrialOutcome::TooBig { peak } => write!(f, "{size}: {peak}, too much ({ms} ms)"),
            TrialOutcome::OutOfMemory { asked: Some(asked) } => {
                write!(f, "{size}: out of memory, asked for {asked} ({ms} ms)")
            }
            TrialOutcome::OutOfMemory { asked: None } => {
                write!(f, "{size}: out of memory ({ms} ms)")
            }
        }
    }
}
