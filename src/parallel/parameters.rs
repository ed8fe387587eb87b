use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use fewshot_models::nn::draw;

use super::gradients::{floats, layout};
use super::wire::{bytes_of, floats_of};
use super::{Communicator, ParallelError};

/// The values of a module's float tensors one after the other, on the host: parameters, frozen or
/// not, and running averages.
///
/// # Conventions
/// In the order in which the module is visited; a parameter that it has twice is there once.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatParameters {
    lengths: Vec<usize>,
    values: Vec<f32>,
}

impl FlatParameters {
    /// The values of `module`, read from its device; those not drawn yet are drawn.
    ///
    /// # Errors
    /// [`ParallelError::DType`] for a tensor that is not f32.
    pub fn of<B: Backend, M: Module<B>>(module: &M) -> Result<Self, ParallelError> {
        draw::<B, M>(module);
        let mut read =
            Read { lengths: Vec::new(), values: Vec::new(), seen: HashMap::new(), failed: None };
        module.visit(&mut read);
        match read.failed {
            Some(error) => Err(error),
            None => Ok(Self { lengths: read.lengths, values: read.values }),
        }
    }

    /// The numbers.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// `module` with these values; it stays on its devices, and frozen parameters stay frozen.
    ///
    /// # Errors
    /// [`ParallelError::Layout`] if they are of another module.
    pub fn into_module<B: Backend, M: Module<B>>(self, module: M) -> Result<M, ParallelError> {
        let wanted = Self::of::<B, M>(&module)?;
        if self.lengths.len() != wanted.lengths.len() {
            let [found, wanted] = [&self, &wanted].map(|flat| flat.lengths.len());
            return Err(layout("float tensors", found, wanted));
        }
        let pairs = self.lengths.iter().zip(&wanted.lengths);
        if let Some((found, wanted)) = pairs.into_iter().find(|(found, wanted)| found != wanted) {
            return Err(layout("elements of a tensor", *found, *wanted));
        }
        Ok(module.map(&mut Write { flat: &self, next: 0, seen: HashMap::new() }))
    }
}

/// `module` with the values that it has in process `root`.
///
/// # Errors
/// As [`FlatParameters`], and those of the communicator.
pub fn broadcast_parameters<B: Backend, M: Module<B>>(
    communicator: &dyn Communicator,
    root: usize,
    module: M,
) -> Result<M, ParallelError> {
    let mut flat = FlatParameters::of::<B, M>(&module)?;
    let mut bytes = bytes_of(&flat.values);
    communicator.broadcast(root, &mut bytes)?;
    let (found, wanted) = (bytes.len() / size_of::<f32>(), flat.values.len());
    if found != wanted {
        return Err(layout("elements of all tensors", found, wanted));
    }
    flat.values = floats_of(&bytes);
    flat.into_module::<B, M>(module)
}

struct Read {
    lengths: Vec<usize>,
    values: Vec<f32>,
    seen: HashMap<ParamId, ()>,
    failed: Option<ParallelError>,
}

impl Read {
    fn fail(&mut self, dtype: String) {
        let index = self.lengths.len();
        self.failed.get_or_insert(ParallelError::DType { what: "tensor", index, dtype });
    }
}

impl<B: Backend> ModuleVisitor<B> for Read {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.seen.insert(param.id, ()).is_some() {
            return;
        }
        match floats(param.val().detach().into_data()) {
            Ok(values) => {
                self.lengths.push(values.len());
                self.values.extend(values);
            }
            Err(dtype) => self.fail(dtype),
        }
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.fail(format!("{:?}", param.val().dtype()).to_lowercase());
    }

    fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<B, D, Bool>>) {
        self.fail("bool".to_owned());
    }
}

struct Write<'a> {
    flat: &'a FlatParameters,
    /// Where the next tensor begins, and its number.
    next: usize,
    /// Where those that were written begin.
    seen: HashMap<ParamId, usize>,
}

impl<B: Backend> ModuleMapper<B> for Write<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let next = self.next;
        let id = param.id;
        param.map(|tensor| {
            let start = *self.seen.entry(id).or_insert(next);
            let end = start + tensor.shape().num_elements();
            self.next = next.max(end);
            let data = TensorData::new(self.flat.values[start..end].to_vec(), tensor.dims());
            let written = Tensor::from_data(data, (&tensor.device(), DType::F32));
            written.set_require_grad(tensor.is_require_grad())
        })
    }
}
