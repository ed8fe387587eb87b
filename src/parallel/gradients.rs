use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor, TensorData};

use super::{FlatGradients, ParallelError};

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
        let mut flatten = Flatten::<'_, B> {
            gradients,
            flat: Self::default(),
            tensors: Vec::new(),
            seen: HashSet::new(),
            failed: None,
        };
        module.visit(&mut flatten);
        if let Some(error) = flatten.failed {
            return Err(error);
        }
        if !flatten.tensors.is_empty() {
            let values = Tensor::cat(flatten.tensors, 0).into_data().into_vec();
            flatten.flat.values = values.expect("all of them are f32");
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
        let mut register = Register::<B> {
            flat: &self,
            left: &self.values,
            device,
            seen: HashSet::new(),
            gradients: GradientsParams::new(),
            failed: None,
        };
        module.visit(&mut register);
        match (register.failed, self.lengths.len(), register.seen.len()) {
            (Some(error), ..) => Err(error),
            (None, found, wanted) if found != wanted => Err(layout("float tensors", found, wanted)),
            _ => Ok(register.gradients),
        }
    }
}

struct Flatten<'a, B: AutodiffBackend> {
    gradients: &'a GradientsParams,
    flat: FlatGradients,
    /// What is there, for all of it to be read at once.
    tensors: Vec<Tensor<B::InnerBackend, 1>>,
    seen: HashSet<ParamId>,
    failed: Option<ParallelError>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Flatten<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let gradient = self.gradients.get::<B::InnerBackend, D>(param.id);
        let length = param.val().shape().num_elements();
        self.flat.lengths.push(length);
        self.flat.present.push(gradient.is_some());
        match gradient {
            Some(gradient) if gradient.dtype() == DType::F32 => {
                self.tensors.push(gradient.reshape([length]));
            }
            Some(gradient) => {
                let index = self.flat.lengths.len() - 1;
                let dtype = format!("{:?}", gradient.dtype()).to_lowercase();
                let error = ParallelError::DType { index, dtype };
                self.failed.get_or_insert(error);
            }
            None => {}
        }
    }
}

struct Register<'a, B: AutodiffBackend> {
    flat: &'a FlatGradients,
    left: &'a [f32],
    device: &'a B::Device,
    seen: HashSet<ParamId>,
    gradients: GradientsParams,
    failed: Option<ParallelError>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Register<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let index = self.seen.len();
        if !self.seen.insert(param.id) || index >= self.flat.lengths.len() || self.failed.is_some()
        {
            return;
        }
        let (dims, found) = (param.val().dims(), self.flat.lengths[index]);
        let wanted = dims.iter().product();
        if found != wanted {
            self.failed = Some(layout("elements of a tensor", found, wanted));
        } else if self.flat.present[index] {
            let (values, left) = self.left.split_at(found);
            self.left = left;
            let data = TensorData::new(values.to_vec(), dims);
            let gradient = Tensor::<B::InnerBackend, D>::from_data(data, (self.device, DType::F32));
            self.gradients.register::<B::InnerBackend, D>(param.id, gradient);
        }
    }
}

fn layout(what: &'static str, found: usize, wanted: usize) -> ParallelError {
    ParallelError::Layout { what, found, wanted }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use fewshot_models::nn::{Linear, LinearConfig};

    use super::*;

    type B = Autodiff<Flex>;

    fn layer() -> Linear<B> {
        LinearConfig::new(2, 1).init(&Default::default())
    }

    /// (3, 4) for the weight and 1 for the bias.
    fn gradients(layer: &Linear<B>) -> GradientsParams {
        let input = Tensor::<B, 2>::from_floats([[3.0, 4.0]], &Default::default());
        GradientsParams::from_grads(layer.forward(input).backward(), layer)
    }

    #[test]
    fn gradients_are_flat_in_the_order_of_the_module_and_come_back() {
        let layer = layer();
        let flat = FlatGradients::of::<B, _>(&layer, &gradients(&layer)).unwrap();
        assert_eq!(flat.values(), [3.0, 4.0, 1.0]);
        assert_eq!(flat.lengths, [2, 1]);
        let back = flat.scaled(2.0).into_gradients::<B, _>(&layer, &Default::default()).unwrap();
        assert_eq!(back.len(), 2);
        let weight = back.get::<Flex, 2>(layer.weight.id).unwrap();
        assert_eq!(weight.dims(), layer.weight.val().dims());
        assert_eq!(weight.into_data().into_vec::<f32>().unwrap(), [6.0, 8.0]);
    }

    #[test]
    fn a_parameter_without_a_gradient_comes_back_without_one() {
        let layer = layer();
        let mut some = gradients(&layer);
        some.remove::<Flex, 2>(layer.weight.id);
        let flat = FlatGradients::of::<B, _>(&layer, &some).unwrap();
        assert_eq!((flat.values(), flat.present()), (&[1.0][..], &[false, true][..]));
        let back = flat.into_gradients::<B, _>(&layer, &Default::default()).unwrap();
        assert!(back.get::<Flex, 2>(layer.weight.id).is_none());
        assert!(back.get::<Flex, 1>(layer.bias.unwrap().id).is_some());
    }

    #[test]
    fn a_parameter_that_a_module_has_twice_is_there_once() {
        let layer = layer();
        let twice = vec![layer.clone(), layer.clone()];
        let flat = FlatGradients::of::<B, _>(&twice, &gradients(&layer)).unwrap();
        assert_eq!(flat.values(), [3.0, 4.0, 1.0]);
        let back = flat.into_gradients::<B, _>(&twice, &Default::default()).unwrap();
        assert_eq!(back.len(), 2);
    }

    #[test]
    fn gradients_of_another_module_are_an_error() {
        let (layer, other) = (layer(), self::layer());
        let error = FlatGradients::of::<B, _>(&other, &gradients(&layer)).unwrap_err();
        assert_eq!(error, ParallelError::Layout { what: "gradients", found: 2, wanted: 0 });
        let flat = FlatGradients::of::<B, _>(&layer, &gradients(&layer)).unwrap();
        let longer: Linear<B> = LinearConfig::new(3, 1).init(&Default::default());
        let error = flat.into_gradients::<B, _>(&longer, &Default::default()).unwrap_err();
        let what = "elements of a tensor";
        assert_eq!(error, ParallelError::Layout { what, found: 2, wanted: 3 });
    }

    #[test]
    fn another_data_type_is_an_error() {
        let layer = layer();
        let mut half = GradientsParams::new();
        let gradient = layer.weight.val().inner().cast(DType::F16);
        half.register::<Flex, 2>(layer.weight.id, gradient);
        let error = FlatGradients::of::<B, _>(&layer, &half).unwrap_err();
        assert_eq!(error, ParallelError::DType { index: 0, dtype: "f16".to_owned() });
    }
}
