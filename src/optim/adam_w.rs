use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::optim_step::{StepRule, WeightDecay};

use super::FusedOptimizer;

/// Adam with decoupled weight decay.
///
/// # Conventions
/// `torch.optim.AdamW`, defaults included; Burn's are 1e-5 for `epsilon` and 1e-4 for the decay. The
/// decay is multiplied with the learning rate, which the paper leaves open.
///
/// # Source
/// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, arXiv:1711.05101.
#[derive(Config, Debug)]
pub struct AdamW {
    /// Share of the first moment that stays after a step.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Share of the second moment that stays after a step.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the root of the second moment.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// Share of the parameter, times the learning rate, that is taken from it.
    #[config(default = 0.01)]
    pub weight_decay: f64,
    /// Burn's clipping of every gradient by itself; none if not set.
    pub grad_clipping: Option<GradientClippingConfig>,
}

impl AdamW {
    /// The optimizer, before its first step.
    pub fn init<B: AutodiffBackend, M: AutodiffModule<B>>(&self) -> FusedOptimizer<Self, M, B> {
        let &Self { beta_1, beta_2, epsilon, weight_decay, .. } = self;
        let weight_decay = WeightDecay::Decoupled(weight_decay);
        let rule = StepRule::Adam { beta_1, beta_2, epsilon, weight_decay };
        FusedOptimizer::new(rule, self.grad_clipping.as_ref())
    }
}
