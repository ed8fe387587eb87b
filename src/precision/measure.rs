//! Gradients leave their container all at once, are measured, and come back.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};
use fewshot_kernels::grad_stats;

use super::ScaleError;

/// The gradients of `module` times `factor`; all others as they are.
pub(super) fn multiplied<B: AutodiffBackend, M: AutodiffModule<B>>(
    gradients: GradientsParams,
    module: &M,
    factor: f64,
) -> GradientsParams {
    TakenGradients::of(gradients, module).restore(module, factor)
}

/// The gradients of a module.
pub(super) struct TakenGradients<B: AutodiffBackend> {
    /// What belongs to none of its parameters.
    rest: GradientsParams,
    ids: Vec<ParamId>,
    pub(super) tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> TakenGradients<B> {
    pub(super) fn of<M: AutodiffModule<B>>(gradients: GradientsParams, module: &M) -> Self {
        let mut taken = Self { rest: gradients, ids: Vec::new(), tensors: Vec::new() };
        module.visit(&mut taken);
        taken
    }

    /// That all are of the module's parameters, or they would stay scaled, and none in half precision.
    pub(super) fn check(&self) -> Result<(), ScaleError> {
        let (known, all) = (self.ids.len(), self.ids.len() + self.rest.len());
        assert_eq!(known, all, "only {known} of {all} gradients are of the module's parameters");
        let mut types = self.tensors.iter().map(|tensor| tensor.dtype());
        let half = types.find(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        half.map_or(Ok(()), |found| Err(ScaleError::HalfGradient { found }))
    }

    /// As [`measured`].
    pub(super) fn measured<M: AutodiffModule<B>>(
        mut self,
        module: &M,
        factor: f64,
    ) -> (GradientsParams, f64) {
        let (tensors, stats) = grad_stats::<B::InnerBackend>(self.tensors, factor);
        self.tensors = tensors;
        (self.restore(module, 1.0), stats.norm)
    }

    /// All gradients, those of the module times `factor`.
    pub(super) fn restore<M: AutodiffModule<B>>(self, module: &M, factor: f64) -> GradientsParams {
        let tensors = self.ids.into_iter().zip(self.tensors).collect();
        let mut putting = RestoreGradients::<B> { into: self.rest, tensors, factor };
        module.visit(&mut putting);
        putting.into
    }
}

impl<B: AutodiffBackend> ModuleVisitor<B> for TakenGradients<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        // A parameter that a module has twice has one gradient.
        if let Some(gradient) = self.rest.remove::<B::InnerBackend, D>(param.id) {
            self.ids.push(param.id);
            self.tensors.push(gradient.into_primitive().tensor());
        }
    }
}

struct RestoreGradients<B: AutodiffBackend> {
    into: GradientsParams,
    tensors: HashMap<ParamId, FloatTensor<B::InnerBackend>>,
    factor: f64,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for RestoreGradients<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(tensor) = self.tensors.remove(&param.id) {
            let gradient = Tensor::from_primitive(TensorPrimitive::Float(tensor));
            let gradient = if self.factor == 1.0 { gradient } else { gradient * self.factor };
            self.into.register::<B::InnerBackend, D>(param.id, gradient);
        }
    }
}
