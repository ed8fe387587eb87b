//! Parameters that training leaves as they are.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use super::averages::{self, Averages};
use crate::optim::{ParameterGroups, ParameterPath, Update};
use crate::precision::ScaledGrads;

/// The frozen parameters of a learner, with the running averages among them.
pub(super) struct Frozen<B: AutodiffBackend> {
    ids: Vec<ParamId>,
    averages: Averages<B>,
}

impl<B: AutodiffBackend> Frozen<B> {
    pub(super) fn new<M: Module<B>>(groups: &ParameterGroups, module: &M) -> Self {
        let mut list = ListFrozen { groups, path: ParameterPath::default(), ids: Vec::new() };
        module.visit(&mut list);
        let ids = list.ids;
        let averages = averages::running_averages::<B, M>(module);
        let averages = averages.into_iter().filter(|(id, _)| ids.contains(id)).collect();
        Self { ids, averages }
    }

    /// The gradients of all other parameters.
    pub(super) fn without_gradients(&self, gradients: ScaledGrads) -> ScaledGrads {
        let (mut gradients, scale) = gradients.into_parts();
        for id in &self.ids {
            // The container knows no ranks: 1 stands for any.
            gradients.remove::<B::InnerBackend, 1>(*id);
        }
        ScaledGrads::new(gradients, scale)
    }

    /// `module` with the running averages that it had at first.
    pub(super) fn restore<M: Module<B>>(&self, module: M) -> M {
        match self.averages.is_empty() {
            true => module,
            false => averages::restore::<B, M>(module, &self.averages),
        }
    }
}

struct ListFrozen<'a> {
    groups: &'a ParameterGroups,
    path: ParameterPath,
    ids: Vec<ParamId>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for ListFrozen<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.groups.group(&self.path.name()).update == Update::Frozen {
            self.ids.push(param.id);
        }
    }
}
