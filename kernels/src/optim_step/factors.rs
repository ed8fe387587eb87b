//! The factors of a step, from its rule, learning rate and time.
//!
//! Computed in f64, as the terms that correct for the moments' start are differences of near
//! numbers, and rounded where elements are f32.

use super::{Momentum, StepRule, WeightDecay};

/// `g + l2 * p` for the gradient, and `p * keep` for the parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// Zero if the gradient stays as it is.
    pub l2: f64,
    /// One if the parameter stays as it is.
    pub keep: f64,
}

impl Decay {
    fn new(decay: WeightDecay, learning_rate: f64) -> Self {
        match decay {
            WeightDecay::L2(l2) => Self { l2, keep: 1.0 },
            WeightDecay::Decoupled(strength) => {
                Self { l2: 0.0, keep: 1.0 - learning_rate * strength }
            }
        }
    }
}

/// `v = old * v + new * g`, then `d = ahead * v + now * g`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Velocity {
    /// For the old velocity.
    pub old: f64,
    /// For the gradient.
    pub new: f64,
    /// For the velocity, in the direction.
    pub ahead: f64,
    /// For the gradient, in the direction: one or zero.
    pub now: f64,
}

impl Velocity {
    fn new(momentum: Momentum, first: bool) -> Self {
        let Momentum { factor, dampening, nesterov } = momentum;
        let (ahead, now) = if nesterov { (factor, 1.0) } else { (1.0, 0.0) };
        Self { old: factor, new: if first { 1.0 } else { 1.0 - dampening }, ahead, now }
    }
}

/// `m = beta_1 * m + (1 - beta_1) * g` and `v = beta_2 * v + (1 - beta_2) * g^2`, then the ratio
/// `r = first * m / (root * sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// For the old first moment; the gradient has `1 - beta_1`.
    pub beta_1: f64,
    /// For the old second moment; the gradient's square has `1 - beta_2`.
    pub beta_2: f64,
    /// `1 / (1 - beta_1^t)`.
    pub first: f64,
    /// `1 / sqrt(1 - beta_2^t)`.
    pub root: f64,
    /// Added to the root.
    pub epsilon: f64,
}

impl Moments {
    fn new([beta_1, beta_2, epsilon]: [f64; 3], time: usize) -> Self {
        let left = |beta: f64| 1.0 - beta.powi(i32::try_from(time).unwrap_or(i32::MAX));
        Self { beta_1, beta_2, first: 1.0 / left(beta_1), root: 1.0 / left(beta_2).sqrt(), epsilon }
    }
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
                decay: Decay::new(weight_decay, rate),
                velocity: momentum.map(|momentum| Velocity::new(momentum, time == 0)),
                rate,
            },
            Self::Adam { beta_1, beta_2, epsilon, weight_decay } => Factors::Adam {
                decay: Decay::new(weight_decay, rate),
                moments: Moments::new([beta_1, beta_2, epsilon], time + 1),
                rate,
            },
            Self::Lamb { beta_1, beta_2, epsilon, weight_decay } => Factors::Lamb {
                pull: weight_decay,
                moments: Moments::new([beta_1, beta_2, epsilon], time + 1),
                rate,
            },
        }
    }
}
