use std::fmt;

use fewshot_kernels::StepRule;
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

/// The kind of one of this library's optimizers, by its [`rule`](crate::optim::FusedOptimizer::rule).
impl From<&StepRule> for OptimizerKind {
    fn from(rule: &StepRule) -> Self {
        use fewshot_kernels::optim_step::WeightDecay;
        match rule {
            StepRule::Sgd { momentum: None, .. } => Self::Sgd,
            StepRule::Sgd { momentum: Some(_), .. } => Self::Momentum,
            StepRule::Adam { weight_decay: WeightDecay::Decoupled(_), .. } => Self::AdamW,
            StepRule::Adam { .. } => Self::Adam,
            StepRule::Lamb { .. } => Self::Lamb,
        }
    }
}

impl fmt::Display for OptimizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sgd => "sgd",
            Self::Momentum => "momentum",
            Self::Adam => "adam",
            Self::AdamW => "adam_w",
            Self::Lamb => "lamb",
        })
    }
}
