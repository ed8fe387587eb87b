use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::optim_step::StepRule;

use super::FusedOptimizer;

/// LAMB: Adam whose step is as long as the parameter, tensor by tensor, for large meta-batches.
///
/// # Conventions
/// Algorithm 2 of the paper with both bias corrections and without bounds on the norms; the decay is
/// inside the ratio of norms. Records are those of `burn::optim::Adam`, whose moments are the same.
///
/// # Source
/// You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020,
/// arXiv:1904.00962.
#[derive(Config, Debug)]
pub struct Lamb {
    /// Share of the first moment that stays after a step.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Share of the second moment that stays after a step.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the root of the second moment; 1e-6 in the paper.
    #[config(default = 1e-6)]
    pub epsilon: f64,
    /// Share of the parameter that is added to the ratio of its moments; 0.01 in the paper.
    #[config(default = 0.01)]
    pub weight_decay: f64,
    /// Burn's clipping of every gradient by itself; none if not set.
    pub grad_clipping: Option<GradientClippingConfig>,
}

impl Lamb {
    /// The optimizer, before its first step.
    pub fn init<B: AutodiffBackend, M: AutodiffModule<B>>(&self) -> FusedOptimizer<Self, M, B> {
        let &Self { beta_1, beta_2, epsilon, weight_decay, .. } = self;
        let rule = StepRule::Lamb { beta_1, beta_2, epsilon, weight_decay };
        FusedOptimizer::new(rule, self.grad_clipping.as_ref())
    }
}
