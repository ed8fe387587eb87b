use super::{FlatGradients, Sum};

/// What a micro-batch adds to a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// Sum over its tasks of their gradients.
    pub gradients: FlatGradients,
    /// Sum over its tasks of their losses.
    pub loss: f64,
    /// Sum over its tasks of their scores.
    pub score: f64,
    /// How much it counts: its tasks.
    pub weight: f64,
}

impl Sum for Contribution {
    /// # Panics
    /// If the gradients are of different modules.
    fn plus(self, right: Self) -> Self {
        Self {
            gradients: self.gradients.plus(right.gradients),
            loss: self.loss + right.loss,
            score: self.score + right.score,
            weight: self.weight + right.weight,
        }
    }
}
