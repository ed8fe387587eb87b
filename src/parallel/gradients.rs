use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};

use super::{ParallelError, Sum};

/// The gradients of a module one after the other, on the host.
///
/// # Conventions
/// In the order in which the module is visited; a parameter that it has twice is there once, and one
/// without a gradient takes no room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlatGradients {
    /// Elements of every float tensor of the module, with a gradient or without.
    pub(super) lengths: Vec<usize>,
    /// Which of them have one.
    pub(super) present: Vec<bool>,
    /// The elements of those that do.
    pub(super) values: Vec<f32>,
}

impl FlatGradients {
    /// The gradients of `module`, read from their device.
    ///
    /// # Errors
    /// [`ParallelError::DType`] for one that is not f32, and [`ParallelError::Layout`] for gradients of
    /// parameters that the module does not have.
    pub fn of<B: AutodiffBackend, M: Module<B>>(
        module: &M,
        gradients: &GradientsParams,
    ) -> Result<Self, ParallelError> {
        let mut flatten =
            Flatten::<'_> { gradients, flat: Self::default(), seen: HashSet::new(), failed: None };
        visit::<B, _, _>(module, &mut flatten);
        if let Some(error) = flatten.failed {
            return Err(error);
        }
        let wanted = flatten.flat.present.iter().filter(|present| **present).count();
        match gradients.len() == wanted {
            true => Ok(flatten.flat),
            false => Err(layout("gradients", gradients.len(), wanted)),
        }
    }

    /// Gradients for `module` on `device`.
    ///
    /// # Errors
    /// [`ParallelError::Layout`] if they are of another module.
    pub fn into_gradients<B: AutodiffBackend, M: Module<B>>(
        self,
        module: &M,
        device: &B::Device,
    ) -> Result<GradientsParams, ParallelError> {
        let wanted = lengths::<B, M>(module);
        self.check(&wanted)?;
        let mut register = Register::<B> {
            flat: &self,
            parameter: 0,
            offset: 0,
            device,
            seen: HashSet::new(),
            gradients: GradientsParams::new(),
        };
        visit::<B, _, _>(module, &mut register);
        Ok(register.gradients)
    }

    /// The numbers, of the parameters that have a gradient.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Which parameters have a gradient, in the order in which the module is visited.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// Every number times `factor`.
    pub fn scaled(mut self, factor: f32) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    fn check(&self, wanted: &[usize]) -> Result<(), ParallelError> {
        if self.lengths.len() != wanted.len() {
            return Err(layout("float tensors", self.lengths.len(), wanted.len()));
        }
        match self.lengths.iter().zip(wanted).find(|(found, wanted)| found != wanted) {
            Some((found, wanted)) => Err(layout("elements of a tensor", *found, *wanted)),
            None => Ok(()),
        }
    }

    /// The same with zeros for those of `present` that have no gradient here.
    pub(super) fn spread(self, present: &[bool]) -> Self {
        if self.present == present {
            return self;
        }
        let mut values = Vec::new();
        let mut rest = &self.values[..];
        for (index, &length) in self.lengths.iter().enumerate() {
            match (self.present[index], present[index]) {
                (true, _) => {
                    let (own, others) = rest.split_at(length);
                    values.extend_from_slice(own);
                    rest = others;
                }
                (false, true) => values.resize(values.len() + length, 0.0),
                (false, false) => {}
            }
        }
        let present = union(&self.present, present);
        Self { lengths: self.lengths, present, values }
    }
}

impl Sum for FlatGradients {
    /// # Panics
    /// If they are of different modules.
    fn plus(self, right: Self) -> Self {
        assert_eq!(self.lengths, right.lengths, "gradients of one module");
        let present = union(&self.present, &right.present);
        let (mut sum, right) = (self.spread(&present), right.spread(&present));
        sum.values.iter_mut().zip(right.values).for_each(|(sum, right)| *sum += right);
        sum
    }
}

/// How many elements those `present` have, if that is a number.
pub(super) fn elements(lengths: &[usize], present: &[bool]) -> Option<usize> {
    let mut lengths = lengths.iter().zip(present).filter(|(_, present)| **present);
    lengths.try_fold(0_usize, |sum, (length, _)| sum.checked_add(*length))
}

pub(super) fn union(left: &[bool], right: &[bool]) -> Vec<bool> {
    left.iter().zip(right).map(|(left, right)| *left || *right).collect()
}

pub(super) fn layout(what: &'static str, found: usize, wanted: usize) -> ParallelError {
    ParallelError::Layout { what, found, wanted }
}

fn visit<B: Backend, M: Module<B>, V: ModuleVisitor<B>>(module: &M, visitor: &mut V) {
    module.visit(visitor);
}

struct Flatten<'a> {
    gradients: &'a GradientsParams,
    flat: FlatGradients,
    seen: HashSet<ParamId>,
    failed: Option<ParallelError>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let gradient = self.gradients.get::<B::InnerBackend, D>(param.id);
        self.flat.lengths.push(param.val().shape().num_elements());
        self.flat.present.push(gradient.is_some());
        let Some(gradient) = gradient else { return };
        match floats(gradient.into_data()) {
            Ok(values) => self.flat.values.extend(values),
            Err(dtype) => {
                let index = self.flat.lengths.len() - 1;
                let error = ParallelError::DType { what: "the gradient of tensor", index, dtype };
                self.failed.get_or_insert(error);
            }
        }
    }
}

/// The elements, or the name of the data type if it is another.
pub(super) fn floats(data: TensorData) -> Result<Vec<f32>, String> {
    let dtype = data.dtype;
    match dtype {
        DType::F32 => data.into_vec().map_err(|error| format!("{error:?}")),
        other => Err(format!("{other:?}").to_lowercase()),
    }
}

fn lengths<B: Backend, M: Module<B>>(module: &M) -> Vec<usize> {
    let mut found = Lengths { lengths: Vec::new(), seen: HashSet::new() };
    visit::<B, _, _>(module, &mut found);
    found.lengths
}

struct Lengths {
    lengths: Vec<usize>,
    seen: HashSet<ParamId>,
}

impl<B: Backend> ModuleVisitor<B> for Lengths {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.seen.insert(param.id) {
            self.lengths.push(param.val().shape().num_elements());
        }
    }
}

struct Register<'a, B: AutodiffBackend> {
    flat: &'a FlatGradients,
    parameter: usize,
    offset: usize,
    device: &'a B::Device,
    seen: HashSet<ParamId>,
    gradients: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Register<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let (index, start) = (self.parameter, self.offset);
        self.parameter += 1;
        if !self.flat.present[index] {
            return;
        }
        self.offset += self.flat.lengths[index];
        let values = self.flat.values[start..self.offset].to_vec();
        let data = TensorData::new(values, param.val().dims());
        let gradient = Tensor::<B::InnerBackend, D>::from_data(data, (self.device, DType::F32));
        self.gradients.register::<B::InnerBackend, D>(param.id, gradient);
    }
}
