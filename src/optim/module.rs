//! Parameters leave a module all at once, so that nothing else holds their memory, and come back.

use std::vec::IntoIter;

use burn::grad_clipping::GradientClipping;
use burn::module::{ModuleMapper, Param, ParamId};
use burn::optim::adaptor::GradAdaptor;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use fewshot_kernels::{StepRule, StepTensors};

use super::BurnRecords;
use super::states::{States, lift, lower};

pub(super) struct TakenParameter {
    pub(super) id: ParamId,
    pub(super) rank: usize,
    require_grad: bool,
}

/// Takes every parameter that has a gradient out of a module, and leaves an empty tensor there.
pub(super) struct TakeParameters<'a, R: BurnRecords<B::InnerBackend>, B: AutodiffBackend> {
    pub(super) gradients: GradAdaptor,
    pub(super) rule: &'a StepRule,
    pub(super) clipping: Option<&'a GradientClipping>,
    pub(super) states: &'a mut States<R, B>,
    /// Parameters in the module's order; `None` for one that stayed.
    pub(super) left: Vec<Option<TakenParameter>>,
    pub(super) taken: Vec<StepTensors<FloatTensor<B::InnerBackend>>>,
}

impl<R: BurnRecords<B::InnerBackend>, B: AutodiffBackend> ModuleMapper<B>
    for TakeParameters<'_, R, B>
{
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some((gradient, device)) = self.gradients.remove::<B::InnerBackend, D>(param.id) else {
            self.left.push(None);
            return param;
        };
        let gradient = match self.clipping {
            Some(clipping) => clipping.clip_gradient(gradient),
            None => gradient,
        };
        let (id, tensor, mapper) = param.consume();
        self.left.push(Some(TakenParameter {
            id,
            rank: D,
            require_grad: tensor.is_require_grad(),
        }));
        let parameter = match tensor.device() == device {
            true => tensor.inner(),
            false => tensor.inner().to_device(&device),
        };
        self.taken.push(StepTensors {
            parameter: lower(parameter),
            gradient: lower(gradient),
            state: self.states.take::<D>(id, &device, self.rule),
        });
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
