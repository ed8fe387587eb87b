use serde::{Deserialize, Serialize};

use super::Score;
use crate::phase::PhaseTimes;

/// One training step, a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Steps done with this one.
    pub step: u64,
    /// Mean loss over all queries of the step.
    pub loss: f32,
    /// Share of queries classified rightly, in percent; of a classifier alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Scale of the loss, in `f16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// Time of this process since the step before, by phase.
    #[serde(default)]
    pub phase_ms: PhaseTimes,
}

/// One validation, a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationMetrics {
    /// Steps done before it.
    pub step: u64,
    /// Score of the validation.
    pub validation: Score,
}

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Step(StepMetrics),
    Validation(ValidationMetrics),
}

impl Line {
    pub(super) fn step(&self) -> u64 {
        match self {
            Self::Step(metrics) => metrics.step,
            Self::Validation(metrics) => metrics.step,
        }
    }
}
