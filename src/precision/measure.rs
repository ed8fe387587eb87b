//! Gradients leave their container all at once, are measured, and come back.

use std::collections::{HashMap, HashSet};

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use fewshot_kernels::{DeviceGradStats, grad_stats, grad_stats_on_device};

/// The gradients of `module` times `factor`, and their joint Euclidean norm after that.
///
/// The device is read from once. What belongs to no parameter of `module` is left out of the norm,
/// and stays as it is.
pub(super) fn measured<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut gradients: GradientsParams,
    module: &M,
    factor: f64,
) -> (GradientsParams, f64) {
    let mut taking =
        TakeGradients::<B> { from: &mut gradients, ids: Vec::new(), tensors: Vec::new() };
    module.visit(&mut taking);
    let TakeGradients { ids, tensors, .. } = taking;
    let (tensors, stats) = grad_stats::<B::InnerBackend>(tensors, factor);
    let tensors = ids.into_iter().zip(tensors).collect();
    module.visit(&mut RestoreGradients::<B> { into: &mut gradients, tensors });
    (gradients, stats.norm)
}

/// The joint Euclidean norm of the gradients of `module`, without reading from the device.
pub(super) fn on_device<B: AutodiffBackend, M: AutodiffModule<B>>(
    gradients: &GradientsParams,
    module: &M,
) -> DeviceGradStats<B::InnerBackend> {
    let mut sharing =
        CollectGradients::<B> { from: gradients, seen: HashSet::new(), tensors: Vec::new() };
    module.visit(&mut sharing);
    grad_stats_on_device::<B::InnerBackend>(sharing.tensors)
}

/// The gradients of `module` times `factor`; all others as they are.
pub(super) fn multiplied<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut gradients: GradientsParams,
    module: &M,
    factor: f64,
) -> GradientsParams {
    module.visit(&mut ScaleGradients { gradients: &mut gradients, factor, seen: HashSet::new() });
    gradients
}

/// What is to be known of gradients before they are measured.
pub(super) struct Kinds {
    /// How many belong to parameters of the module.
    pub(super) known: usize,
    /// The data type of the first one in half precision, if there is one.
    pub(super) half: Option<DType>,
}

/// Looks at the gradients of `module`, without reading from the device.
pub(super) fn kinds<B: AutodiffBackend, M: AutodiffModule<B>>(
    gradients: &GradientsParams,
    module: &M,
) -> Kinds {
    let mut looking = InspectGradients { gradients, seen: HashSet::new(), half: None };
    module.visit(&mut looking);
    Kinds { known: looking.seen.len(), half: looking.half }
}

struct TakeGradients<'a, B: AutodiffBackend> {
    from: &'a mut GradientsParams,
    ids: Vec<ParamId>,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for TakeGradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.from.remove::<B::InnerBackend, D>(param.id) {
            self.ids.push(param.id);
            self.tensors.push(gradient.into_primitive().tensor());
        }
    }
}

struct CollectGradients<'a, B: AutodiffBackend> {
    from: &'a GradientsParams,
    seen: HashSet<ParamId>,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for CollectGradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.seen.insert(param.id)
            && let Some(gradient) = self.from.get::<B::InnerBackend, D>(param.id)
        {
            self.tensors.push(gradient.into_primitive().tensor());
        }
    }
}

struct RestoreGradients<'a, B: AutodiffBackend> {
    into: &'a mut GradientsParams,
    tensors: HashMap<ParamId, FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for RestoreGradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(tensor) = self.tensors.remove(&param.id) {
            let gradient = Tensor::from_primitive(TensorPrimitive::Float(tensor));
            self.into.register::<B::InnerBackend, D>(param.id, gradient);
        }
    }
}

struct ScaleGradients<'a> {
    gradients: &'a mut GradientsParams,
    factor: f64,
    /// A parameter that a module has twice has one gradient.
    seen: HashSet<ParamId>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for ScaleGradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.seen.insert(param.id)
            && let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id)
        {
            let scaled = gradient * self.factor;
            self.gradients.register::<B::InnerBackend, D>(param.id, scaled);
        }
    }
}

struct InspectGradients<'a> {
    gradients: &'a GradientsParams,
    seen: HashSet<ParamId>,
    half: Option<DType>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for InspectGradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id) {
            self.seen.insert(param.id);
            let half = matches!(gradient.dtype(), DType::F16 | DType::BF16);
            self.half = self.half.or(half.then_some(gradient.dtype()));
        }
    }
}
