//! An optimizer that is chosen when the program runs, under one type.

use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::AutodiffModule;
use burn::optim::SimpleOptimizer;
use burn::record::Record;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::{StepRule, StepState, StepTensors, optim_step};

use super::records::State;
use super::states::{lift, lower, map};
use super::{Adam, AdamW, BurnRecords, FusedOptimizer, Lamb, Sgd};

/// One of the optimizers. What is generic over the optimizer is compiled once for all of them.
///
/// # Conventions
/// Records of [`Adam`], [`AdamW`], [`Lamb`] and [`Sgd`] can be loaded, since they are read field by
/// field. Those of Burn's optimizers cannot be loaded from its own, but for Adam and AdamW.
#[derive(Config, Debug)]
pub enum AnyOptimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam.
    Adam(Adam),
    /// Adam with decoupled weight decay.
    AdamW(AdamW),
    /// LAMB.
    Lamb(Lamb),
}

impl AnyOptimizer {
    /// The optimizer, before its first step.
    pub fn init<B: AutodiffBackend, M: AutodiffModule<B>>(&self) -> FusedOptimizer<Self, M, B> {
        FusedOptimizer::new(self.rule(), self.clipping())
    }

    fn rule(&self) -> StepRule {
        match self {
            Self::Sgd(sgd) => sgd.rule(),
            Self::Adam(adam) => adam.rule(),
            Self::AdamW(adam) => adam.rule(),
            Self::Lamb(lamb) => lamb.rule(),
        }
    }

    fn clipping(&self) -> Option<&GradientClippingConfig> {
        match self {
            Self::Sgd(sgd) => sgd.grad_clipping.as_ref(),
            Self::Adam(adam) => adam.grad_clipping.as_ref(),
            Self::AdamW(adam) => adam.grad_clipping.as_ref(),
            Self::Lamb(lamb) => lamb.grad_clipping.as_ref(),
        }
    }
}

/// The state of any of the optimizers for a parameter.
#[derive(Record, Clone)]
pub struct AnyState<B: Backend, const D: usize> {
    /// Nothing of SGD without momentum. The name is that of Burn's records, as are those below.
    momentum: Option<Memory<B, D>>,
}

#[derive(Record, Clone)]
pub struct Memory<B: Backend, const D: usize> {
    /// Steps that the parameter has made. Records of [`Sgd`] do not have it.
    time: Option<usize>,
    velocity: Option<Tensor<B, D>>,
    moment_1: Option<Tensor<B, D>>,
    moment_2: Option<Tensor<B, D>>,
}

impl<B: Backend, const D: usize> AnyState<B, D> {
    fn pack(state: StepState<Tensor<B, D>>) -> Self {
        let time = Some(state.time);
        Self {
            momentum: match state.tensors {
                [None, _] => None,
                [velocity, None] => Some(Memory { time, velocity, moment_1: None, moment_2: None }),
                [moment_1, moment_2] => Some(Memory { time, velocity: None, moment_1, moment_2 }),
            },
        }
    }

    fn unpack(self) -> StepState<Tensor<B, D>> {
        let Some(memory) = self.momentum else { return StepState::default() };
        let Memory { time, velocity, moment_1, moment_2 } = memory;
        let first = velocity.or(moment_1);
        let time = time.unwrap_or(usize::from(first.is_some()));
        StepState { time, tensors: [first, moment_2] }
    }
}

impl<B: Backend> SimpleOptimizer<B> for AnyOptimizer {
    type State<const D: usize> = AnyState<B, D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<B, D>,
        gradient: Tensor<B, D>,
        state: Option<AnyState<B, D>>,
    ) -> (Tensor<B, D>, Option<AnyState<B, D>>) {
        let state = state.map(AnyState::unpack).unwrap_or_default();
        let of = StepTensors {
            parameter: lower(tensor),
            gradient: lower(gradient),
            state: map(state, lower::<B, D>),
        };
        let mut stepped = optim_step::<B>(vec![of], &self.rule(), rate);
        let stepped = stepped.pop().expect("one parameter goes in and comes out");
        (lift(stepped.parameter), Some(AnyState::pack(map(stepped.state, lift::<B, D>))))
    }

    fn to_device<const D: usize>(state: AnyState<B, D>, device: &B::Device) -> AnyState<B, D> {
        AnyState::pack(map(state.unpack(), |tensor| tensor.to_device(device)))
    }
}

impl<B: Backend> BurnRecords<B> for AnyOptimizer {
    type Optimizer = Self;

    fn pack<const D: usize>(state: StepState<Tensor<B, D>>) -> State<Self, B, D> {
        AnyState::pack(state)
    }

    fn unpack<const D: usize>(
        state: State<Self, B, D>,
        _device: &B::Device,
    ) -> StepState<Tensor<B, D>> {
        state.unpack()
    }
}
