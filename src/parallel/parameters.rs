use std::collections::{HashMap, HashSet};

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
            Read { lengths: Vec::new(), values: Vec::new(), seen: HashSet::new(), failed: None };
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
    seen: HashSet<ParamId>,
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
        if !self.seen.insert(param.id) {
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
    /// Where the next tensor begins.
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

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use fewshot_models::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};

    use super::super::Solo;
    use super::super::together::together;
    use super::*;

    type B = Autodiff<Flex>;

    fn layer() -> Linear<B> {
        LinearConfig::new(3, 2).init(&Default::default())
    }

    #[test]
    fn values_come_back_into_another_module_with_their_marks() {
        let mut other = layer();
        other.bias = other.bias.map(|bias| bias.set_require_grad(false));
        let flat = FlatParameters::of::<B, _>(&layer()).unwrap();
        assert_eq!(flat.values().len(), 8);
        let ids = [other.weight.id, other.bias.as_ref().unwrap().id];
        let filled = flat.clone().into_module::<B, _>(other).unwrap();
        assert_eq!(FlatParameters::of::<B, _>(&filled).unwrap(), flat);
        let bias = filled.bias.as_ref().unwrap();
        assert_eq!([filled.weight.id, bias.id], ids);
        assert!(filled.weight.val().is_require_grad());
        assert!(!bias.val().is_require_grad());
    }

    #[test]
    fn a_module_that_was_filled_can_be_trained() {
        let flat = FlatParameters::of::<B, _>(&layer()).unwrap();
        let filled = flat.into_module::<B, _>(layer()).unwrap();
        let input = Tensor::<B, 2>::ones([1, 3], &Default::default());
        let gradients = filled.forward(input).sum().backward();
        assert!(filled.weight.val().grad(&gradients).is_some());
    }

    #[test]
    fn running_averages_go_along() {
        let norm = || -> BatchNorm<Flex> { BatchNormConfig::new(2).init(&Default::default()) };
        let original = norm();
        let mut flat = FlatParameters::of::<Flex, _>(&original).unwrap();
        assert_eq!(flat.values().len(), 8, "scale, shift, mean and variance");
        flat.values = (0..8).map(|value| value as f32).collect();
        let filled = flat.clone().into_module::<Flex, _>(norm()).unwrap();
        assert_eq!(FlatParameters::of::<Flex, _>(&filled).unwrap(), flat);
        assert_ne!(FlatParameters::of::<Flex, _>(&original).unwrap(), flat, "nothing is shared");
    }

    #[test]
    fn a_parameter_that_a_module_has_twice_is_there_once() {
        let twice = |layer: Linear<B>| vec![layer.clone(), layer];
        let flat = FlatParameters::of::<B, _>(&twice(layer())).unwrap();
        assert_eq!(flat.values().len(), 8);
        let filled = flat.clone().into_module::<B, _>(twice(layer())).unwrap();
        for layer in &filled {
            assert_eq!(FlatParameters::of::<B, _>(layer).unwrap(), flat);
        }
    }

    #[test]
    fn values_of_another_module_are_an_error() {
        let flat = FlatParameters::of::<B, _>(&layer()).unwrap();
        let longer: Linear<B> = LinearConfig::new(4, 2).init(&Default::default());
        let error = flat.into_module::<B, _>(longer).unwrap_err();
        let what = "elements of a tensor";
        assert_eq!(error, ParallelError::Layout { what, found: 6, wanted: 8 });
    }

    #[test]
    fn another_data_type_is_an_error() {
        let mut half = layer();
        half.weight = half.weight.map(|weight| weight.cast(DType::F16));
        let error = FlatParameters::of::<B, _>(&half).unwrap_err();
        let dtype = "f16".to_owned();
        assert_eq!(error, ParallelError::DType { what: "tensor", index: 0, dtype });
    }

    #[test]
    fn every_process_gets_the_values_of_the_root() {
        let found = together(3, |process| {
            let rank = process.rank() as f32;
            let fill = |layer: Linear<Flex>| {
                let mut flat = FlatParameters::of::<Flex, _>(&layer).unwrap();
                flat.values.fill(rank);
                flat.into_module::<Flex, _>(layer).unwrap()
            };
            let own = fill(LinearConfig::new(3, 2).init(&Default::default()));
            let sent = broadcast_parameters::<Flex, _>(process, 1, own).unwrap();
            FlatParameters::of::<Flex, _>(&sent).unwrap().values
        });
        assert_eq!(found, [[1.0; 8]; 3]);
    }

    #[test]
    fn the_only_process_keeps_its_values() {
        let layer = layer();
        let flat = FlatParameters::of::<B, _>(&layer).unwrap();
        let kept = broadcast_parameters::<B, _>(&Solo, 0, layer).unwrap();
        assert_eq!(FlatParameters::of::<B, _>(&kept).unwrap(), flat);
    }
}
