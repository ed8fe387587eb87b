//! Running averages of a learner whose step is made in parts.
//!
//! Their changes travel with the gradients, under the ids of the averages.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::nn::RUNNING_AVERAGES;

/// Running averages, all of them vectors, by their ids.
pub(super) type Averages<B> = BTreeMap<ParamId, Tensor<<B as AutodiffBackend>::InnerBackend, 1>>;

/// Running averages of `module`.
pub(super) fn running_averages<B: AutodiffBackend, M: Module<B>>(module: &M) -> Averages<B> {
    let mut collect = Collect::<B> { within: Vec::new(), values: BTreeMap::new() };
    module.visit(&mut collect);
    collect.values
}

/// Registers the change of the running averages of `module` since `before`.
pub(super) fn register_changes<B: AutodiffBackend, M: Module<B>>(
    module: &M,
    before: &Averages<B>,
    registered: &mut GradientsParams,
) {
    for (id, now) in running_averages::<B, M>(module) {
        let before = before[&id].clone();
        let before = match before.device() == now.device() {
            true => before,
            false => Tensor::from_data(before.into_data(), (&now.device(), now.dtype())),
        };
        registered.register::<B::InnerBackend, 1>(id, now - before);
    }
}

/// `module` with the registered changes of its running averages, which are taken out of `registered`.
pub(super) fn with_changes<B: AutodiffBackend, M: Module<B>>(
    module: M,
    registered: &mut GradientsParams,
) -> M {
    let moved = running_averages::<B, M>(&module).into_iter().map(|(id, value)| {
        let change = registered.remove::<B::InnerBackend, 1>(id);
        (id, change.map_or(value.clone(), |change| value + change))
    });
    let moved = moved.collect();
    restore::<B, M>(module, &moved)
}

/// `module` with these values of its running averages.
pub(super) fn restore<B: AutodiffBackend, M: Module<B>>(module: M, values: &Averages<B>) -> M {
    module.map(&mut Restore::<B>(values))
}

struct Collect<B: AutodiffBackend> {
    within: Vec<String>,
    values: Averages<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<B> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.within.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.within.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let name = self.within.last().map(String::as_str);
        if name.is_some_and(|name| RUNNING_AVERAGES.contains(&name)) {
            self.values
                .insert(param.id, Tensor::from_primitive(param.val().inner().into_primitive()));
        }
    }
}

struct Restore<'a, B: AutodiffBackend>(&'a Averages<B>);

impl<B: AutodiffBackend> ModuleMapper<B> for Restore<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(value) = self.0.get(&param.id).cloned() else { return param };
        param.map(|_| Tensor::from_inner(Tensor::from_primitive(value.into_primitive())))
    }
}
