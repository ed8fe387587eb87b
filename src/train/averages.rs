//! Running averages of a learner whose step is made in parts.
//!
//! How far they move travels with the gradients, under the numbers of their own.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::nn::RUNNING_AVERAGES;

/// The running averages of `module`.
pub(super) fn of<B: AutodiffBackend, M: Module<B>>(module: &M) -> GradientsParams {
    let mut found = CollectAverages { within: Vec::new(), values: GradientsParams::new() };
    module.visit(&mut found);
    found.values
}

/// Registers the change of the running averages of `module` since `before`.
pub(super) fn register_changes<B: AutodiffBackend, M: Module<B>>(
    module: &M,
    before: &GradientsParams,
    registered: &mut GradientsParams,
) {
    module.visit(&mut RegisterChanges { before, registered });
}

/// `module` with the registered changes added to what has running averages `before`; they are taken out of
/// `registered`.
pub(super) fn with_changes<B: AutodiffBackend, M: Module<B>>(
    module: M,
    before: &GradientsParams,
    registered: &mut GradientsParams,
) -> M {
    module.map(&mut MoveAverages { before, ways: Some(registered) })
}

struct CollectAverages {
    within: Vec<String>,
    values: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for CollectAverages {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.within.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.within.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let name = self.within.last().map(String::as_str);
        if name.is_some_and(|name| RUNNING_AVERAGES.contains(&name)) {
            self.values.register::<B::InnerBackend, D>(param.id, param.val().inner());
        }
    }
}

struct RegisterChanges<'a> {
    before: &'a GradientsParams,
    registered: &'a mut GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for RegisterChanges<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(before) = self.before.get::<B::InnerBackend, D>(param.id) {
            let now = param.val().inner();
            let before = match before.device() == now.device() {
                true => before,
                false => Tensor::from_data(before.into_data(), (&now.device(), now.dtype())),
            };
            self.registered.register::<B::InnerBackend, D>(param.id, now - before);
        }
    }
}

/// `module` with its running averages as they were `before`.
pub(super) fn restore<B: AutodiffBackend, M: Module<B>>(module: M, before: &GradientsParams) -> M {
    module.map(&mut MoveAverages { before, ways: None })
}

/// Moves running averages by `ways`, or restores their values `before`.
struct MoveAverages<'a> {
    before: &'a GradientsParams,
    ways: Option<&'a mut GradientsParams>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for MoveAverages<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(before) = self.before.get::<B::InnerBackend, D>(param.id) else { return param };
        let Some(ways) = &mut self.ways else { return param.map(|_| Tensor::from_inner(before)) };
        match ways.remove::<B::InnerBackend, D>(param.id) {
            Some(way) => param.map(|value| Tensor::from_inner(value.inner() + way)),
            None => param,
        }
    }
}
