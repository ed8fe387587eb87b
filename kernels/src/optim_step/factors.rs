//! The factors of a step, from its rule, learning rate and time.
//!
//! Computed in f64, as the terms that correct for the moments' start are differences of near
//! numbers, and rounded where elements are f32.

pub use fewshot_simd::steps::{Decay, Moments, Velocity};

use super::{Momentum, StepRule, WeightDecay};

fn decay(decay: WeightDecay, learning_rate: f64) -> Decay {
    match decay {
        WeightDecay::L2(l2) => Decay { l2, keep: 1.0 },
        WeightDecay::Decoupled(strength) => Decay { l2: 0.0, keep: 1.0 - learning_rate * strength },
    }
}

fn velocity(momentum: Momentum, first: bool) -> Velocity {
    let Momentum { factor, dampening, nesterov } = momentum;
    let (ahead, now) = if nesterov { (factor, 1.0) } else { (1.0, 0.0) };
    Velocity { old: factor, new: if first { 1.0 } else { 1.0 - dampening }, ahead, now }
}

fn moments([beta_1, beta_2, epsilon]: [f64; 3], time: usize) -> Moments {
    let left = |beta: f64| 1.0 - beta.powi(i32::try_from(time).unwrap_or(i32::MAX));
    Moments { beta_1, beta_2, first: 1.0 / left(beta_1), root: 1.0 / left(beta_2).sqrt(), epsilon }
}

/// Everything a parameter's step multiplies with; `rate` is the learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Factors {
    /// `p * keep - rate * d`, with `d` the gradient where there is no velocity.
    Sgd { decay: Decay, velocity: Option<Velocity>, rate: f64 },
    /// `p * keep - rate * r`.
    Adam { decay: Decay, moments: Moments, rate: f64 },
    /// `p - rate * |p| / |u| * u` with `u = r + pull * p`.
    Lamb { pull: f64, moments: Moments, rate: f64 },
}

impl StepRule {
    /// The factors of the step after `time` others.
    pub fn factors(&self, time: usize, rate: f64) -> Factors {
        match *self {
            Self::Sgd { momentum, weight_decay } => Factors::Sgd {
                decay: decay(weight_decay, rate),
                velocity: momentum.map(|momentum| velocity(momentum, time == 0)),
                rate,
            },
            Self::Adam { beta_1, beta_2, epsilon, weight_decay } => Factors::Adam {
                decay: decay(weight_decay, rate),
                moments: moments([beta_1, beta_2, epsilon], time + 1),
                rate,
            },
            Self::Lamb { beta_1, beta_2, epsilon, weight_decay } => Factors::Lamb {
                pull: weight_decay,
                moments: moments([beta_1, beta_2, epsilon], time + 1),
                rate,
            },
        }
    }
}
