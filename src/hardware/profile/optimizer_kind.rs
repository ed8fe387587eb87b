use serde::{Deserialize, Serialize};

/// An optimizer, as far as its memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Gradient descent.
    Sgd,
    /// Gradient descent with momentum.
    Momentum,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
    /// Adam with a rate for each layer.
    Lamb,
}

impl OptimizerKind {
    /// What it remembers of every trainable parameter, in tensors of its size: the velocity, or two
    /// moments.
    pub fn copies(self) -> u64 {
        match self {
            Self::Sgd => 0,
            Self::Momentum => 1,
            Self::Adam | Self::AdamW | Self::Lamb => 2,
        }
    }
}
