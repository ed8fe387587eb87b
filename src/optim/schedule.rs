//! Learning rates as functions of the step.

use std::f64::consts::PI;

use burn::lr_scheduler::LrScheduler;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

/// The course of a learning rate. A step has the index `s`, from 0.
///
/// # Conventions
/// PyTorch's schedulers of these names, advanced once an optimizer step; after the last of `steps` the rate
/// stays as it is at their end. Burn's cosine starts over there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateCurve {
    /// The same rate at every step.
    Constant,
    /// `gamma ^ floor(s / every)` times the rate: `StepLR`.
    Step {
        /// Steps between two changes, at least 1.
        every: u64,
        /// Factor of a change.
        gamma: f64,
    },
    /// `gamma` to the number of milestones up to `s`, times the rate: `MultiStepLR`.
    MultiStep {
        /// Steps at which the rate changes.
        milestones: Vec<u64>,
        /// Factor of a change.
        gamma: f64,
    },
    /// `(1 + cos(pi s / steps)) / 2` times the rate: `CosineAnnealingLR` down to 0. With a warm-up, the cosine
    /// spans the steps after it.
    Cosine {
        /// All steps of the training.
        steps: u64,
    },
    /// `OneCycleLR` with its defaults, momentum left as it is: by a cosine from a 25th of the rate up to it in
    /// the first three tenths of the steps, and down to a 250 000th.
    OneCycle {
        /// All steps of the training.
        steps: u64,
    },
    /// `1 - s / steps` times the rate: `LinearLR` down to 0.
    Linear {
        /// All steps of the training.
        steps: u64,
    },
}

/// A learning rate over the steps of a training: a curve, after a linear warm-up where there is one.
///
/// Its record is that of Burn's `StepLrScheduler`, or for [`RateCurve::Linear`] that of
/// `LinearLrScheduler`, whose rates are the same to the last bit.
///
/// # Conventions
/// At step `s` of a warm-up of `w` steps, the rate is `(s + 1) / (w + 1)` times that of the curve: PyTorch's
/// `LinearLR` with a `start_factor` of `1 / (w + 1)`.
///
/// # Example
/// ```
/// use fewshot::optim::{RateCurve, Schedule};
///
/// let schedule = Schedule::new(0.1, RateCurve::Cosine { steps: 12 }).with_warm_up(2);
/// assert!((schedule.rate_at(0) - 0.1 / 3.0).abs() < 1e-12);
/// assert_eq!(schedule.rate_at(2), 0.1);
/// assert!((schedule.rate_at(7) - 0.05).abs() < 1e-12);
/// ```
///
/// # Source
/// Cosine: Loshchilov and Hutter, 2017, arXiv:1608.03983, without restarts. One cycle: Smith and Topin, 2019,
/// arXiv:1708.07120. Warm-up: Goyal et al., 2017, arXiv:1706.02677.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    rate: f64,
    curve: RateCurve,
    warm_up: u64,
    /// Steps that were made.
    step: u64,
}

impl Schedule {
    /// A schedule that begins, or after its rise peaks, at `rate`.
    pub fn new(rate: f64, curve: RateCurve) -> Self {
        Self { rate, curve, warm_up: 0, step: 0 }
    }

    /// A schedule with this many steps of warm-up.
    pub fn with_warm_up(self, steps: u64) -> Self {
        Self { warm_up: steps, ..self }
    }

    /// The learning rate of the step with the index `step`, from 0.
    pub fn rate_at(&self, step: u64) -> f64 {
        let rate = self.curve_at(step);
        match step < self.warm_up {
            true => rate * ((step + 1) as f64 / (self.warm_up + 1) as f64),
            false => rate,
        }
    }

    fn curve_at(&self, step: u64) -> f64 {
        let rate = self.rate;
        match &self.curve {
            RateCurve::Constant => rate,
            &RateCurve::Step { every, gamma } => rate * gamma.powi((step / every.max(1)) as i32),
            RateCurve::MultiStep { milestones, gamma } => {
                let passed = milestones.iter().filter(|milestone| **milestone <= step).count();
                rate * gamma.powi(passed as i32)
            }
            RateCurve::Cosine { steps } => {
                let done = step.saturating_sub(self.warm_up) as f64;
                let all = steps.saturating_sub(self.warm_up).max(1) as f64;
                between(rate, 0.0, (done / all).min(1.0))
            }
            RateCurve::OneCycle { steps } => one_cycle(rate, step as f64, *steps as f64),
            RateCurve::Linear { steps } => {
                // In the order in which Burn rounds.
                let fall = (0.0 - rate) / (*steps).max(1) as f64;
                0.0 - fall * steps.saturating_sub(step) as f64
            }
        }
    }
}

/// The rate that a cosine has after a `share` of its way.
fn between(start: f64, end: f64, share: f64) -> f64 {
    end + (start - end) / 2.0 * (1.0 + (PI * share).cos())
}

fn one_cycle(most: f64, step: f64, steps: f64) -> f64 {
    let (first, peak, last) = (most / 25.0, 0.3 * steps - 1.0, steps - 1.0);
    match step <= peak {
        true => between(first, most, step / peak),
        false => between(most, first / 1e4, ((step - peak) / (last - peak)).min(1.0)),
    }
}

impl LrScheduler for Schedule {
    type Record<B: Backend> = i64;

    fn step(&mut self) -> f64 {
        let rate = self.rate_at(self.step);
        self.step += 1;
        rate
    }

    fn to_record<B: Backend>(&self) -> i64 {
        match self.curve {
            RateCurve::Linear { steps } => (steps + 1).saturating_sub(self.step) as i64,
            _ => self.step as i64 - 1,
        }
    }

    fn load_record<B: Backend>(self, record: i64) -> Self {
        let step = match self.curve {
            RateCurve::Linear { steps } => (steps + 1).saturating_sub(record as u64),
            _ => (record + 1).max(0) as u64,
        };
        Self { step, ..self }
    }
}
