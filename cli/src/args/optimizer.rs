//! The outer step: its rule, its rate over the steps, and the parameters that it moves.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{first_given, steps};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Outer step")]
pub(crate) struct OptimizerArgs {
    /// Rule of the outer step, not of reptile, whose steps are plain [default: adam]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) optimizer: Option<OptimizerName>,
    /// Share of sgd's velocity that stays after a step [default: 0.9]
    #[arg(long, value_name = "SHARE")]
    pub(crate) momentum: Option<f64>,
    /// Nesterov's momentum, of sgd
    #[arg(long)]
    pub(crate) nesterov: bool,
    /// Weight decay of matrices and filters: of sgd and adam added to the gradient, of adamw and lamb apart from it
    /// [default: 0, of adamw and lamb 0.01]
    #[arg(long, value_name = "STRENGTH")]
    pub(crate) weight_decay: Option<f64>,
    /// Decay biases, norms and other vectors as well
    #[arg(long)]
    pub(crate) decay_all: bool,
    /// Course of the learning rate, not of reptile [default: halve]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) schedule: Option<ScheduleName>,
    /// Steps at which the rate of multi-step changes, as 30000,60000
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_parser = steps(1..))]
    pub(crate) milestones: Vec<u64>,
    /// Factor of a change of multi-step [default: 0.1]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) gamma: Option<f64>,
    /// Steps in which the rate rises linearly at first [default: 0]
    #[arg(long, value_name = "N", value_parser = steps(1..))]
    pub(crate) warm_up: Option<u64>,
    /// Run folder or checkpoint whose encoder training starts with, and all else that fits if the method is the same
    #[arg(long, value_name = "RUN")]
    pub(crate) from: Option<PathBuf>,
    /// Parameters and running averages that stay as they are, by the beginnings of their names, as
    /// blocks.0,blocks.1; inner loops still move them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) freeze: Vec<String>,
    /// Learning rate of the encoder, where that of the rest is --lr
    #[arg(long, value_name = "RATE")]
    pub(crate) encoder_lr: Option<f64>,
    /// Factor of the learning rate from each layer of the encoder to the one before it
    #[arg(long, value_name = "FACTOR")]
    pub(crate) lr_decay_by_layer: Option<f64>,
    /// Average weights over steps with this decay, and validate, test and save the averages
    #[arg(long, value_name = "DECAY")]
    pub(crate) ema: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OptimizerName {
    /// Gradient descent with momentum
    Sgd,
    /// Adam
    Adam,
    /// Adam with decoupled weight decay
    #[value(name = "adamw")]
    AdamW,
    /// Adam with steps as long as the weights, for large meta-batches
    Lamb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleName {
    /// --lr at every step
    Constant,
    /// Half of it after every --halve-every steps
    Halve,
    /// Times --gamma at each of --milestones
    MultiStep,
    /// Down to 0 over --steps by a cosine
    Cosine,
    /// Up from a 25th over the first three tenths of --steps, and down to almost 0
    OneCycle,
}

impl OptimizerArgs {
    /// The first option that the plain steps of reptile do not have.
    pub(crate) fn rule_given(&self) -> Option<String> {
        let rule = first_given!(self, optimizer, momentum, nesterov, weight_decay, decay_all);
        rule.or(first_given!(self, schedule, milestones, gamma, warm_up))
    }
}
