use serde::{Deserialize, Serialize};

/// How far a run has come. Episodes are a function of it, so nothing else about them is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimizer steps done.
    pub step: u64,
    /// The best validation so far.
    pub best: Option<Best>,
    /// Validations since the best one.
    pub since_best: u32,
}

/// A validation that was better than all before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Optimizer steps done at the time.
    pub step: u64,
    /// Mean accuracy in percent.
    pub accuracy: f64,
}

impl Progress {
    /// Notes a validation and says whether it is the best so far.
    pub(super) fn validated(&mut self, accuracy: f64) -> bool {
        if self.best.is_some_and(|best| best.accuracy >= accuracy) {
            self.since_best += 1;
            return false;
        }
        self.best = Some(Best { step: self.step, accuracy });
        self.since_best = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_higher_accuracy_is_a_new_best() {
        let mut progress = Progress { step: 10, ..Default::default() };
        assert!(progress.validated(50.0));
        progress.step = 20;
        assert!(!progress.validated(50.0));
        assert!(!progress.validated(49.0));
        assert_eq!(progress.since_best, 2);
        assert_eq!(progress.best, Some(Best { step: 10, accuracy: 50.0 }));
        assert!(progress.validated(51.0));
        assert_eq!(progress.since_best, 0);
    }
}
