use serde::{Deserialize, Serialize};

use super::Score;
use crate::precision::GradScalerState;

/// Progress of a run. Episodes are a function of the step, so nothing else about them is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimizer steps done.
    pub step: u64,
    /// The best validation so far.
    pub best: Option<Best>,
    /// Validations since the best one.
    pub since_best: u32,
    /// The loss scale of a learner that computes in `f16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaler: Option<GradScalerState>,
}

/// A validation that was better than all before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Optimizer steps done at the time.
    pub step: u64,
    /// Score of the validation.
    pub score: Score,
}

impl Progress {
    /// Notes a validation and says whether it is the best so far.
    pub(super) fn validated(&mut self, score: Score) -> bool {
        let improves = |best: Best| score.measure.improves(score.mean, best.score.mean);
        if !self.best.is_none_or(improves) {
            self.since_best += 1;
            return false;
        }
        self.best = Some(Best { step: self.step, score });
        self.since_best = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::Measure;

    #[test]
    fn only_a_higher_accuracy_is_a_new_best() {
        let accuracy = |mean| Score { measure: Measure::Accuracy, mean, ci95: 1.0 };
        let mut progress = Progress { step: 10, ..Default::default() };
        assert!(progress.validated(accuracy(50.0)));
        progress.step = 20;
        assert!(!progress.validated(accuracy(50.0)));
        assert!(!progress.validated(accuracy(49.0)));
        assert_eq!(progress.since_best, 2);
        assert_eq!(progress.best, Some(Best { step: 10, score: accuracy(50.0) }));
        assert!(progress.validated(accuracy(51.0)));
        assert_eq!(progress.since_best, 0);
    }

    #[test]
    fn only_a_smaller_error_is_a_new_best() {
        let error = |mean| Score { measure: Measure::SquaredError, mean, ci95: 0.1 };
        let mut progress = Progress::default();
        assert!(progress.validated(error(2.0)));
        assert!(!progress.validated(error(2.5)));
        assert!(progress.validated(error(1.5)));
    }
}
