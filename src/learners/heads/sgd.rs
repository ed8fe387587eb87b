use burn::module::Module;
use burn::tensor::backend::Backend;
use fewshot_kernels::optim_step::{Momentum, StepRule, WeightDecay};
use serde::Serialize;

use super::checked::{not_negative, positive, some_steps};
use super::descent::Descent;

/// Gradient descent with momentum over the whole support, as `torch.optim.SGD`.
///
/// `g = gradient + weight_decay * w`, `v = momentum * v + (1 - dampening) * g` (`v = g` at the first
/// step), `w = w - rate * v`.
///
/// By default 100 steps with the settings of Chen et al.'s code, which passes 100 times over the support in
/// batches of 4: of `n` examples it takes `100 ceil(n / 4)` steps.
#[derive(Module, Clone, Debug, PartialEq, Serialize)]
pub struct Sgd {
    /// Number of steps, at least 1.
    pub steps: usize,
    /// Learning rate, above 0; the authors' code has 0.01.
    pub rate: f64,
    /// Share of the velocity that stays, at least 0; the authors' code has 0.9.
    pub momentum: f64,
    /// Share of the gradient that is left out of the velocity, at least 0; the authors' code has 0.9.
    pub dampening: f64,
    /// Strength of the pull towards zero, at least 0; the authors' code has 0.001.
    pub weight_decay: f64,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { steps: 100, rate: 0.01, momentum: 0.9, dampening: 0.9, weight_decay: 0.001 }
    }
}

impl Sgd {
    pub(super) fn descent<B: Backend>(&self) -> Descent<B> {
        let Self { steps, rate, momentum: factor, dampening, weight_decay } = *self;
        some_steps(steps);
        positive("the learning rate", rate);
        not_negative("momentum, dampening and weight decay", [factor, dampening, weight_decay]);
        let rule = StepRule::Sgd {
            momentum: Some(Momentum { factor, dampening, nesterov: false }),
            weight_decay: WeightDecay::L2(weight_decay),
        };
        Descent::new(rule, rate)
    }
}
