use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use fewshot_kernels::optim_step;
use fewshot_kernels::optim_step::{StepRule, StepState, StepTensors, WeightDecay};

use super::checked::positive;

/// An optimizer of one tensor, whose gradient the caller computes.
pub(super) struct Descent<B: Backend> {
    rule: StepRule,
    rate: f64,
    state: StepState<FloatTensor<B>>,
}

impl<B: Backend> Descent<B> {
    pub(super) fn new(rule: StepRule, rate: f64) -> Self {
        Self { rule, rate, state: StepState::default() }
    }

    /// Adam (Kingma and Ba, ICLR 2015) with its authors' settings, as PyTorch's default.
    ///
    /// # Panics
    /// If the rate is not positive.
    pub(super) fn adam(rate: f64) -> Self {
        positive("the learning rate", rate);
        let rule = StepRule::Adam {
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-8,
            weight_decay: WeightDecay::NONE,
        };
        Self::new(rule, rate)
    }

    /// The weights after another step. All steps are of weights of one shape.
    pub(super) fn step<const D: usize>(
        &mut self,
        weights: Tensor<B, D>,
        gradient: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let [parameter, gradient] = [weights, gradient].map(|of| of.into_primitive().tensor());
        let state = std::mem::take(&mut self.state);
        let of = StepTensors { parameter, gradient, state };
        let mut stepped = optim_step::<B>(vec![of], &self.rule, self.rate);
        let stepped = stepped.remove(0);
        self.state = stepped.state;
        Tensor::from_primitive(TensorPrimitive::Float(stepped.parameter))
    }
}
