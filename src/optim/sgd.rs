use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::AutodiffModule;
use burn::optim::SgdState;
use burn::optim::momentum::MomentumState;
use burn::record::{FullPrecisionSettings, Record};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::optim_step::{Momentum, StepRule, StepState, WeightDecay};

use super::records::State;
use super::{BurnRecords, FusedOptimizer};

/// Stochastic gradient descent, with momentum where it is not 0.
///
/// # Conventions
/// `torch.optim.SGD`, defaults included; Burn dampens momentum by 0.1 by default.
///
/// # Source
/// Nesterov's variant: Sutskever et al., "On the importance of initialization and momentum in deep
/// learning", 2013.
#[derive(Config, Debug)]
pub struct Sgd {
    /// Share of the velocity that stays after a step.
    #[config(default = 0.0)]
    pub momentum: f64,
    /// Share of the gradient that does not reach the velocity.
    #[config(default = 0.0)]
    pub dampening: f64,
    /// `true` to step along the gradient plus `momentum` times the new velocity, like Nesterov's
    /// variant.
    #[config(default = false)]
    pub nesterov: bool,
    /// Share of the parameter that is added to its gradient.
    #[config(default = 0.0)]
    pub weight_decay: f64,
    /// Burn's clipping of every gradient by itself; none if not set.
    pub grad_clipping: Option<GradientClippingConfig>,
}

impl Sgd {
    /// The optimizer, before its first step.
    pub fn init<B: AutodiffBackend, M: AutodiffModule<B>>(&self) -> FusedOptimizer<Self, M, B> {
        FusedOptimizer::new(self.rule(), self.grad_clipping.as_ref())
    }

    pub(super) fn rule(&self) -> StepRule {
        let &Self { momentum: factor, dampening, nesterov, weight_decay, .. } = self;
        let momentum = (factor != 0.0).then_some(Momentum { factor, dampening, nesterov });
        StepRule::Sgd { momentum, weight_decay: WeightDecay::L2(weight_decay) }
    }
}

impl<B: Backend> BurnRecords<B> for Sgd {
    type Optimizer = burn::optim::Sgd<B>;

    fn pack<const D: usize>(state: StepState<Tensor<B, D>>) -> State<Self, B, D> {
        let [velocity, _] = state.tensors;
        SgdState::new(velocity.map(MomentumState::new))
    }

    fn unpack<const D: usize>(
        state: State<Self, B, D>,
        device: &B::Device,
    ) -> StepState<Tensor<B, D>> {
        let velocity = state.momentum.map(|momentum| {
            // The velocity is private, but not in the form that is written to files.
            let item = momentum.into_item::<FullPrecisionSettings>();
            Record::<B>::from_item::<FullPrecisionSettings>(item.velocity, device)
        });
        StepState { time: usize::from(velocity.is_some()), tensors: [velocity, None] }
    }
}
