use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::optim_step::{StepRule, WeightDecay};

use super::FusedOptimizer;

/// Adam, with weight decay as a term of the gradient.
///
/// # Conventions
/// `torch.optim.Adam`, defaults included; Burn's `epsilon` is 1e-5.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::optim::{GradientsParams, Optimizer};
/// use burn::tensor::Tensor;
/// use fewshot::models::nn::{Linear, LinearConfig};
/// use fewshot::optim::Adam;
///
/// type B = Autodiff<Flex>;
/// let device = Default::default();
/// let layer: Linear<B> = LinearConfig::new(3, 2).init(&device);
/// let mut optimizer = Adam::new().init();
///
/// let loss = layer.forward(Tensor::ones([4, 3], &device)).sum();
/// let gradients = GradientsParams::from_grads(loss.backward(), &layer);
/// let layer: Linear<B> = optimizer.step(1e-3, layer, gradients);
/// ```
///
/// # Source
/// Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, arXiv:1412.6980.
#[derive(Config, Debug)]
pub struct Adam {
    /// Share of the first moment that stays after a step.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Share of the second moment that stays after a step.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the root of the second moment; 1e-8 in the paper.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// Share of the parameter that is added to its gradient.
    #[config(default = 0.0)]
    pub weight_decay: f64,
    /// Burn's clipping of every gradient by itself; none if not set.
    pub grad_clipping: Option<GradientClippingConfig>,
}

impl Adam {
    /// The optimizer, before its first step.
    pub fn init<B: AutodiffBackend, M: AutodiffModule<B>>(&self) -> FusedOptimizer<Self, M, B> {
        let &Self { beta_1, beta_2, epsilon, weight_decay, .. } = self;
        let weight_decay = WeightDecay::L2(weight_decay);
        let rule = StepRule::Adam { beta_1, beta_2, epsilon, weight_decay };
        FusedOptimizer::new(rule, self.grad_clipping.as_ref())
    }
}
