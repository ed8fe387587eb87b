//! The outer step of a run.

use burn::lr_scheduler::linear::{LinearLrScheduler, LinearLrSchedulerConfig};
use burn::lr_scheduler::step::{StepLrScheduler, StepLrSchedulerConfig};
use serde::{Deserialize, Serialize};

use crate::args::TrainArgs;
use crate::method::Method;
use crate::prelude::*;

/// The learning rate of the outer step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OuterStep {
    learning_rate: f64,
    /// Never, if `None`.
    halve_every: Option<usize>,
    /// Steps over which it falls to zero, of reptile alone.
    #[serde(default)]
    steps: Option<usize>,
}

impl OuterStep {
    /// The outer step of a run of `steps`, unless the options say otherwise.
    pub(crate) fn new(args: &TrainArgs, halve_every: Option<usize>, steps: u64) -> Result<Self> {
        let reptile = args.method == Method::Reptile;
        if reptile && args.halve_every.is_some() {
            return Err(usage!("the rate of reptile falls to zero over --steps: no --halve-every"));
        }
        if reptile && args.lr.is_some_and(|rate| rate > 1.0) {
            return Err(usage!("--lr of reptile is at most 1, all the way to where its tasks end"));
        }
        let steps = usize::try_from(args.steps.unwrap_or(steps)).unwrap_or(usize::MAX);
        Ok(Self {
            learning_rate: args.lr.unwrap_or(if reptile { 1.0 } else { 1e-3 }),
            halve_every: args.halve_every.or(halve_every),
            steps: reptile.then_some(steps.min(usize::MAX - 1)),
        })
    }

    pub(crate) fn halved(&self) -> Result<StepLrScheduler> {
        let every = self.halve_every.unwrap_or(usize::MAX);
        let rate = StepLrSchedulerConfig::new(self.learning_rate, every).with_gamma(0.5);
        rate.init().map_err(CliError::Usage)
    }

    pub(crate) fn annealed(&self) -> Result<LinearLrScheduler> {
        // Settings read from a file may be anything.
        let steps = self.steps.ok_or_else(|| failed!("the settings of reptile have no steps"))?;
        let rate = LinearLrSchedulerConfig::new(self.learning_rate, 0.0, steps);
        rate.init().map_err(CliError::Usage)
    }
}
