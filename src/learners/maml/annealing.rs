use serde::{Deserialize, Serialize};

use super::Settings;
use crate::adapt::{InnerLoop, Order};

/// Schedules of [`Maml::plus_plus`](super::Maml::plus_plus) in the course of meta-training.
///
/// # Conventions
/// Both fields count meta-steps; the authors count epochs of 500. Both are 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annealing {
    /// Number of meta-steps whose outer loss includes the query loss after every inner step. At
    /// first all these losses count alike, then those before the last one less and less, down to
    /// 3 % of that. After these meta-steps only the last one counts. 5000 to 7500 in the authors'
    /// configurations.
    pub multi_step: u64,
    /// Number of meta-steps of first order that come before those of the inner loop's order; 0 in
    /// the authors' configurations.
    pub first_order: u64,
}

impl Annealing {
    /// Weights of the query loss after each of `steps` inner steps, once `done` meta-steps are made,
    /// while all losses count.
    fn weights(self, steps: usize, done: u64) -> Option<Vec<f64>> {
        if done >= self.multi_step {
            return None;
        }
        let share = 1.0 / steps as f64;
        let left = 1.0 - done as f64 / self.multi_step as f64;
        let early = share * left.max(0.03);
        let mut weights = vec![early; steps];
        weights[steps - 1] = 1.0 - early * (steps - 1) as f64;
        Some(weights)
    }
}

impl Settings {
    /// The inner loop of this meta-step.
    pub(super) fn inner_now(&self) -> InnerLoop {
        let first = self.meta_steps < self.annealing.unwrap_or_default().first_order;
        let order = if first { Order::First } else { self.inner.order };
        self.inner.clone().with_order(order)
    }

    /// Weight of the query loss after each inner step in this meta-step.
    pub(super) fn step_weights_now(&self) -> Vec<f64> {
        let annealing = self.annealing.unwrap_or_default();
        let weights = annealing.weights(self.inner.steps, self.meta_steps);
        weights.unwrap_or_else(|| self.step_weights.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_counts_more_and_more() {
        let annealing = Annealing { multi_step: 100, first_order: 0 };
        for (done, expected) in [
            (0, [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]),
            (50, [1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0]),
            (99, [0.01, 0.01, 0.98]),
        ] {
            let weights = annealing.weights(3, done).expect("weights of all steps");
            for (weights, expected) in weights.iter().zip(expected) {
                assert!(
                    (weights - expected).abs() < 1e-12,
                    "{weights} is not {expected} at {done}"
                );
            }
        }
        assert_eq!(annealing.weights(3, 100), None);
        assert_eq!(annealing.weights(1, 50), Some(vec![1.0]));
        assert_eq!(Annealing::default().weights(3, 0), None);
    }
}
