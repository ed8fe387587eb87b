use std::marker::PhantomData;
use std::sync::Arc;

use burn::grad_clipping::{GradientClipping, GradientClippingConfig};
use burn::module::AutodiffModule;
use burn::optim::adaptor::GradAdaptor;
use burn::optim::{GradientsParams, MultiGradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::{StepRule, optim_step};

use super::module::{Groups, RestoreParameters, TakeParameters};
use super::states::{Records, States};
use super::{BurnRecords, ParameterGroups};

/// An optimizer that updates all parameters of a module in one call.
///
/// A parameter without a gradient stays as it is, and so does its state; every parameter counts its
/// own steps. Parameters of one [group](ParameterGroups) move in one call; there is one group unless
/// [`with_groups`](Self::with_groups) makes more.
#[derive(Clone)]
pub struct FusedOptimizer<R: BurnRecords<B::InnerBackend>, M, B: AutodiffBackend> {
    rule: StepRule,
    clipping: Option<GradientClipping>,
    /// None where all parameters are in one group.
    groups: Option<Arc<ParameterGroups>>,
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
        Self { rule, clipping, groups: None, states, module: PhantomData }
    }

    /// An optimizer with rates, decay and freezing of parameters by name.
    pub fn with_groups(self, groups: ParameterGroups) -> Self {
        Self { groups: (!groups.is_uniform()).then(|| Arc::new(groups)), ..self }
    }

    fn step_by(&mut self, rate: f64, module: M, gradients: GradAdaptor) -> M {
        let mut taking = TakeParameters {
            gradients,
            rule: &self.rule,
            clipping: self.clipping.as_ref(),
            states: &mut self.states,
            groups: Groups::new(self.groups.as_deref()),
            left: Vec::new(),
        };
        let module = module.map(&mut taking);
        let TakeParameters { left, groups, .. } = taking;
        let mut moved: Vec<_> = groups
            .into_taken()
            .map(|(group, taken)| {
                let rule = group.rule(&self.rule);
                optim_step::<B::InnerBackend>(taken, &rule, rate * group.rate).into_iter()
            })
            .collect();
        let mut parameters = Vec::with_capacity(left.len());
        for left in left.iter().flatten() {
            let stepped = moved[left.group].next().expect("as many as were taken out");
            self.states.keep(left.id, left.rank, stepped.state);
            parameters.push(stepped.parameter);
        }
        let (left, moved) = (left.into_iter(), parameters.into_iter());
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
