//! Measures of gradients: they leave their container all at once, and come back.

use burn::module::{AutodiffModule, ParamId, list_param_ids};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};

use super::ScaleError;

/// The gradients of a module.
pub(super) struct TakenGradients<B: AutodiffBackend> {
    /// Gradients of parameters that are not the module's.
    rest: GradientsParams,
    ids: Vec<ParamId>,
    pub(super) tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> TakenGradients<B> {
    pub(super) fn new<M: AutodiffModule<B>>(gradients: GradientsParams, module: &M) -> Self {
        let mut taken = Self { rest: gradients, ids: Vec::new(), tensors: Vec::new() };
        for id in list_param_ids::<M, B>(module) {
            // The container knows no ranks: 1 stands for any. A parameter that a module has twice has one
            // gradient.
            if let Some(gradient) = taken.rest.remove::<B::InnerBackend, 1>(id) {
                taken.ids.push(id);
                taken.tensors.push(gradient.into_primitive().tensor());
            }
        }
        taken
    }

    /// Checks that all gradients belong to the module's parameters, or they would stay scaled, and that none is in half precision.
    pub(super) fn check(&self) -> Result<(), ScaleError> {
        let (known, all) = (self.ids.len(), self.ids.len() + self.rest.len());
        assert_eq!(known, all, "only {known} of {all} gradients are of the module's parameters");
        let mut types = self.tensors.iter().map(|tensor| tensor.dtype());
        let half = types.find(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        half.map_or(Ok(()), |dtype| Err(ScaleError::HalfGradient { dtype }))
    }

    /// All gradients, those of the module times `factor`.
    pub(super) fn restore(self, factor: f64) -> GradientsParams {
        let mut all = self.rest;
        for (id, tensor) in self.ids.into_iter().zip(self.tensors) {
            let gradient =
                Tensor::<B::InnerBackend, 1>::from_primitive(TensorPrimitive::Float(tensor));
            all.register(id, if factor == 1.0 { gradient } else { gradient * factor });
        }
        all
    }
}
