use std::any::Any;
use std::collections::HashMap;
use std::vec::IntoIter;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::{Backend, ExecutionError};
use burn::tensor::{BasicOps, Bool, Int, Shape, Tensor, TensorData};

use super::{HostRecord, Pooled};
use crate::hardware::Bytes;

impl<B: Backend, M: Module<B> + 'static> Pooled<B, M> {
    /// A copy of the parameters in host memory, each in its own type of numbers, where Burn's
    /// recorders convert all to one. `template` makes a module to put them back into, bit for bit
    /// and under their ids; all else of the module is the template's.
    ///
    /// A template that draws its parameters draws them again, and moves the backend's random numbers
    /// on; Burn's own layers wait with that until they are used, which here they are not.
    ///
    /// # Errors
    /// What the device says when a tensor cannot be read.
    pub fn to_host(
        &self,
        template: impl FnOnce() -> M + Send + Sync + 'static,
    ) -> Result<HostRecord<Self>, String> {
        let mut read = ReadTensors { tensors: Vec::new(), failed: None };
        self.visit(&mut read);
        if let Some(error) = read.failed {
            return Err(error.to_string());
        }
        let data = read.tensors.iter().filter_map(|saved| saved.data.as_ref());
        let bytes = data.map(|data| data.bytes.len() as u64).sum();
        let restore = move || written::<B, M>(template(), read.tensors).map(Self::new);
        Ok(HostRecord::new(Bytes(bytes), restore))
    }
}

/// `module` with these values for its tensors, or why they do not fit.
fn written<B: Backend, M: Module<B>>(module: M, saved: Vec<Saved>) -> Result<M, String> {
    let count = saved.len();
    let mut write = Write { saved: saved.into_iter(), seen: HashMap::new(), wrong: None, met: 0 };
    let module = module.map(&mut write);
    match (write.wrong, write.met) {
        (Some(wrong), _) => Err(wrong),
        (None, met) if met == count => Ok(module),
        (None, met) => Err(format!("the record has {count} tensors, the template {met}")),
    }
}

/// A tensor as it was.
struct Saved {
    id: ParamId,
    shape: Shape,
    /// None where it is the same tensor as the first of this id.
    data: Option<TensorData>,
}

/// Reads all tensors of a module, in the order in which it is visited.
struct ReadTensors {
    tensors: Vec<Saved>,
    failed: Option<ExecutionError>,
}

impl ReadTensors {
    fn keep(&mut self, id: ParamId, data: Result<TensorData, ExecutionError>) {
        match data {
            Ok(data) => {
                let shape = data.shape.clone();
                let first = self.tensors.iter().find(|saved| saved.id == id);
                // A clone that was trained apart has the same id and other values.
                let shared = first.is_some_and(|saved| saved.data.as_ref() == Some(&data));
                self.tensors.push(Saved { id, shape, data: (!shared).then_some(data) });
            }
            Err(error) => self.failed = Some(error),
        }
    }
}

impl<B: Backend> ModuleVisitor<B> for ReadTensors {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.keep(param.id, param.transform_for_save().val().try_into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.keep(param.id, param.transform_for_save().val().try_into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.keep(param.id, param.transform_for_save().val().try_into_data());
    }
}

/// Puts tensors in the places of a module's own, in the order in which it is visited.
struct Write {
    saved: IntoIter<Saved>,
    /// Tensors that later ones may share.
    seen: HashMap<ParamId, Box<dyn Any>>,
    wrong: Option<String>,
    /// Tensors that the module has.
    met: usize,
}

impl Write {
    /// The next tensor, for a place of this shape on this device.
    fn next<B, const D: usize, K>(
        &mut self,
        shape: Shape,
        device: &B::Device,
    ) -> Option<(ParamId, Tensor<B, D, K>)>
    where
        B: Backend,
        K: BasicOps<B> + 'static,
    {
        self.met += 1;
        let Saved { id, shape: found, data } = self.saved.next()?;
        let tensor = match data {
            _ if found != shape => None,
            Some(data) => {
                let dtype = data.dtype;
                Some(Tensor::<B, D, K>::from_data(data, (device, dtype)))
            }
            None => self.seen.get(&id).and_then(|first| first.downcast_ref()).cloned(),
        };
        let Some(tensor) = tensor else {
            let met = self.met;
            let wrong = || format!("tensor {met} is {found:?}, the template's {shape:?}");
            self.wrong.get_or_insert_with(wrong);
            return None;
        };
        self.seen.entry(id).or_insert_with(|| Box::new(tensor.clone()));
        Some((id, tensor))
    }
}

impl<B: Backend> ModuleMapper<B> for Write {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        match self.next(param.lazy_shape(), &param.lazy_device()) {
            Some((id, tensor)) => param.transform_for_load(tensor, id),
            None => param,
        }
    }

    fn map_int<const D: usize>(
        &mut self,
        param: Param<Tensor<B, D, Int>>,
    ) -> Param<Tensor<B, D, Int>> {
        match self.next(param.lazy_shape(), &param.lazy_device()) {
            Some((id, tensor)) => param.transform_for_load(tensor, id),
            None => param,
        }
    }

    fn map_bool<const D: usize>(
        &mut self,
        param: Param<Tensor<B, D, Bool>>,
    ) -> Param<Tensor<B, D, Bool>> {
        match self.next(param.lazy_shape(), &param.lazy_device()) {
            Some((id, tensor)) => param.transform_for_load(tensor, id),
            None => param,
        }
    }
}
