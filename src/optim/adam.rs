//! Adam and its relatives, which remember the mean of gradients and that of their squares.

use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::AutodiffModule;
use burn::optim::{AdamState, AdamWState, AdaptiveMomentumState};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::optim_step::{StepRule, StepState, WeightDecay};

use super::records::State;
use super::{BurnRecords, FusedOptimizer};

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
    /// Term added to the root of the second moment; 1e-8 in the paper.
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
        FusedOptimizer::new(self.rule(), self.grad_clipping.as_ref())
    }

    pub(super) fn rule(&self) -> StepRule {
        let &Self { beta_1, beta_2, epsilon, weight_decay, .. } = self;
        let weight_decay = WeightDecay::L2(weight_decay);
        StepRule::Adam { beta_1, beta_2, epsilon, weight_decay }
    }
}

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
    /// Term added to the root of the second moment.
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
        FusedOptimizer::new(self.rule(), self.grad_clipping.as_ref())
    }

    pub(super) fn rule(&self) -> StepRule {
        let &Self { beta_1, beta_2, epsilon, weight_decay, .. } = self;
        let weight_decay = WeightDecay::Decoupled(weight_decay);
        StepRule::Adam { beta_1, beta_2, epsilon, weight_decay }
    }
}

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
    /// Term added to the root of the second moment; 1e-6 in the paper.
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
        FusedOptimizer::new(self.rule(), self.grad_clipping.as_ref())
    }

    pub(super) fn rule(&self) -> StepRule {
        let &Self { beta_1, beta_2, epsilon, weight_decay, .. } = self;
        StepRule::Lamb { beta_1, beta_2, epsilon, weight_decay }
    }
}

/// Burn's optimizers are as unlike each other as types can be, and their states as like.
macro_rules! records_moments {
    ($($ours:ty as $burns:ty, $state:ident;)+) => { $(
        impl<B: Backend> BurnRecords<B> for $ours {
            type Optimizer = $burns;

            fn pack<const D: usize>(state: StepState<Tensor<B, D>>) -> State<Self, B, D> {
                let [first, second] =
                    state.tensors.map(|moment| moment.expect("a step leaves both moments"));
                $state::new(AdaptiveMomentumState::new(state.time, first, second))
            }

            fn unpack<const D: usize>(
                state: State<Self, B, D>,
                _device: &B::Device,
            ) -> StepState<Tensor<B, D>> {
                let moments = state.momentum;
                let tensors = [Some(moments.moment_1), Some(moments.moment_2)];
                StepState { time: moments.time, tensors }
            }
        }
    )+ };
}

records_moments! {
    Adam as burn::optim::Adam, AdamState;
    AdamW as burn::optim::AdamW, AdamWState;
    Lamb as burn::optim::Adam, AdamState;
}
