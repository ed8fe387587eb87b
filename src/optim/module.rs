//! Parameters leave a module all at once, so that nothing else holds their memory, and come back.

use std::vec::IntoIter;

use burn::grad_clipping::GradientClipping;
use burn::module::{ModuleMapper, Param, ParamId};
use burn::optim::adaptor::GradAdaptor;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use fewshot_kernels::optim_step::WeightDecay;
use fewshot_kernels::{StepRule, StepTensors};

use super::BurnRecords;
use super::groups::{GroupDecay, ParameterGroup, ParameterGroups, ParameterPath, Update};
use super::states::{States, lift, lower};

pub(super) struct TakenParameter {
    pub(super) id: ParamId,
    pub(super) rank: usize,
    /// Place of its group among those of the step.
    pub(super) group: usize,
    require_grad: bool,
}

/// Parameters that were taken out, by their groups.
pub(super) struct Groups<'a, T> {
    names: Option<Names<'a>>,
    taken: Vec<(ParameterGroup, Vec<StepTensors<T>>)>,
}

struct Names<'a> {
    groups: &'a ParameterGroups,
    path: ParameterPath,
}

impl<'a, T> Groups<'a, T> {
    pub(super) fn new(groups: Option<&'a ParameterGroups>) -> Self {
        let path = ParameterPath::default();
        Self { names: groups.map(|groups| Names { groups, path }), taken: Vec::new() }
    }

    /// The group of the parameter that the mapper has come to.
    fn current(&self) -> ParameterGroup {
        self.names
            .as_ref()
            .map_or_else(ParameterGroup::default, |names| names.groups.group(&names.path.name()))
    }

    /// Adds a parameter to its group, whose place it returns.
    fn push(&mut self, group: ParameterGroup, tensors: StepTensors<T>) -> usize {
        let place = self.taken.iter().position(|(known, _)| *known == group);
        let place = place.unwrap_or_else(|| {
            self.taken.push((group, Vec::new()));
            self.taken.len() - 1
        });
        self.taken[place].1.push(tensors);
        place
    }

    pub(super) fn into_taken(self) -> impl Iterator<Item = (ParameterGroup, Vec<StepTensors<T>>)> {
        self.taken.into_iter()
    }
}

impl ParameterGroup {
    /// The rule for parameters of the group.
    pub(super) fn rule(&self, rule: &StepRule) -> StepRule {
        match (self.decay, *rule) {
            (GroupDecay::Full, rule) => rule,
            (GroupDecay::Exempt, StepRule::Sgd { momentum, .. }) => {
                StepRule::Sgd { momentum, weight_decay: WeightDecay::NONE }
            }
            (GroupDecay::Exempt, StepRule::Adam { beta_1, beta_2, epsilon, .. }) => {
                StepRule::Adam { beta_1, beta_2, epsilon, weight_decay: WeightDecay::NONE }
            }
            (GroupDecay::Exempt, StepRule::Lamb { beta_1, beta_2, epsilon, .. }) => {
                StepRule::Lamb { beta_1, beta_2, epsilon, weight_decay: 0.0 }
            }
        }
    }
}

/// Takes every parameter that has a gradient and is not frozen out of a module, and leaves an empty tensor there.
pub(super) struct TakeParameters<'a, R: BurnRecords<B::InnerBackend>, B: AutodiffBackend> {
    pub(super) gradients: GradAdaptor,
    pub(super) rule: &'a StepRule,
    pub(super) clipping: Option<&'a GradientClipping>,
    pub(super) states: &'a mut States<R, B>,
    pub(super) groups: Groups<'a, FloatTensor<B::InnerBackend>>,
    /// Parameters in the module's order; `None` for one that stayed.
    pub(super) left: Vec<Option<TakenParameter>>,
}

impl<R: BurnRecords<B::InnerBackend>, B: AutodiffBackend> ModuleMapper<B>
    for TakeParameters<'_, R, B>
{
    fn enter_module(&mut self, name: &str, container: &str) {
        if let Some(names) = &mut self.groups.names {
            names.path.enter(name, container);
        }
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        if let Some(names) = &mut self.groups.names {
            names.path.exit();
        }
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let group = self.groups.current();
        let gradient = self.gradients.remove::<B::InnerBackend, D>(param.id);
        let gradient = gradient.filter(|_| group.update == Update::Trained);
        let Some((gradient, device)) = gradient else {
            self.left.push(None);
            return param;
        };
        let gradient = match self.clipping {
            Some(clipping) => clipping.clip_gradient(gradient),
            None => gradient,
        };
        let (id, tensor, mapper) = param.consume();
        let require_grad = tensor.is_require_grad();
        let parameter = match tensor.device() == device {
            true => tensor.inner(),
            false => tensor.inner().to_device(&device),
        };
        let tensors = StepTensors {
            parameter: lower(parameter),
            gradient: lower(gradient),
            state: self.states.take::<D>(id, &device, self.rule),
        };
        let group = self.groups.push(group, tensors);
        self.left.push(Some(TakenParameter { id, rank: D, group, require_grad }));
        Param::from_mapped_value(id, Tensor::empty([1; D], &device), mapper)
    }
}

/// Puts updated parameters back where they were taken out of a module.
pub(super) struct RestoreParameters<B: AutodiffBackend> {
    pub(super) left: IntoIter<Option<TakenParameter>>,
    pub(super) moved: IntoIter<FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for RestoreParameters<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(left) = self.left.next().expect("a module has the parameters it had") else {
            return param;
        };
        let (id, _, mapper) = param.consume();
        let moved = self.moved.next().expect("as many as were taken out");
        let tensor = Tensor::from_inner(lift(moved));
        let tensor = if left.require_grad { tensor.require_grad() } else { tensor };
        Param::from_mapped_value(id, tensor, mapper)
    }
}
