use std::marker::PhantomData;

use burn::grad_clipping::{GradientClipping, GradientClippingConfig};
use burn::module::AutodiffModule;
use burn::optim::adaptor::GradAdaptor;
use burn::optim::{GradientsParams, MultiGradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::{StepRule, optim_step};

use super::BurnRecords;
use super::module::{RestoreParameters, TakeParameters};
use super::states::{Records, States};

/// An optimizer that updates all parameters of a module in one call.
///
/// A parameter without a gradient stays as it is, and so does its state; every parameter counts its
/// own steps.
#[derive(Clone)]
pub struct FusedOptimizer<R: BurnRecords<B::InnerBackend>, M, B: AutodiffBackend> {
    rule: StepRule,
    clipping: Option<GradientClipping>,
    states: States<R, B>,
    module: PhantomData<fn(M) -> M>,
}

impl<R, M, B> FusedOptimizer<R, M, B>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    R: BurnRecords<B::InnerBackend>,
{
    pub(super) fn new(rule: StepRule, clipping: Option<&GradientClippingConfig>) -> Self {
        let states = States::loaded(Records::<R, B>::default());
        let clipping = clipping.map(GradientClippingConfig::init);
        Self { rule, clipping, states, module: PhantomData }
    }

    fn step_by(&mut self, rate: f64, module: M, gradients: GradAdaptor) -> M {
        let mut taking = TakeParameters {
            gradients,
            rule: &self.rule,
            clipping: self.clipping.as_ref(),
            states: &mut self.states,
            left: Vec::new(),
            taken: Vec::new(),
        };
        let module = module.map(&mut taking);
        let TakeParameters { left, taken, .. } = taking;
        let stepped = optim_step::<B::InnerBackend>(taken, &self.rule, rate);
        let mut moved = Vec::with_capacity(stepped.len());
        for (left, stepped) in left.iter().flatten().zip(stepped) {
            self.states.keep(left.id, left.rank, stepped.state);
            moved.push(stepped.parameter);
        }
        let (left, moved) = (left.into_iter(), moved.into_iter());
        module.map(&mut RestoreParameters::<B> { left, moved })
    }
}

impl<R, M, B> Optimizer<M, B> for FusedOptimizer<R, M, B>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    R: BurnRecords<B::InnerBackend>,
{
    type Record = Records<R, B>;

    fn step(&mut self, rate: f64, module: M, gradients: GradientsParams) -> M {
        self.step_by(rate, module, gradients.into())
    }

    fn step_multi(&mut self, rate: f64, module: M, gradients: MultiGradientsParams) -> M {
        self.step_by(rate, module, gradients.into())
    }

    fn to_record(&self) -> Self::Record {
        self.states.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        Self { states: States::loaded(record), ..self }
    }
}
