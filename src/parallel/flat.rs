use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, Shape, Tensor, TensorData, TensorPrimitive};

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
    /// `true` for each tensor that has a gradient.
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
        let mut flat = Self::default();
        // What is there, for all of it to be read at once.
        let mut tensors = Vec::new();
        for (index, (id, shape)) in float_tensors::<B, M>(module).into_iter().enumerate() {
            // The container knows no ranks: 1 stands for any.
            let gradient = gradients.get::<B::InnerBackend, 1>(id);
            let length = shape.num_elements();
            flat.lengths.push(length);
            flat.present.push(gradient.is_some());
            let Some(gradient) = gradient else { continue };
            if gradient.dtype() != DType::F32 {
                let dtype = format!("{:?}", gradient.dtype()).to_lowercase();
                return Err(ParallelError::DType { index, dtype });
            }
            tensors.push(gradient.reshape([length]));
        }
        let (actual, expected) = (gradients.len(), tensors.len());
        if actual != expected {
            return Err(ParallelError::Layout { what: "gradients", actual, expected });
        }
        if !tensors.is_empty() {
            let values = Tensor::cat(tensors, 0).into_data().into_vec();
            flat.values = values.expect("all of them are f32");
        }
        Ok(flat)
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
        let tensors = float_tensors::<B, M>(module);
        let (actual, expected) = (self.lengths.len(), tensors.len());
        let mut gradients = GradientsParams::new();
        let mut left = &self.values[..];
        let own = self.lengths.into_iter().zip(self.present);
        for ((id, shape), (actual, present)) in tensors.into_iter().zip(own) {
            let expected = shape.num_elements();
            if actual != expected {
                return Err(ParallelError::Layout {
                    what: "elements of a tensor",
                    actual,
                    expected,
                });
            }
            if present {
                let (values, rest) = left.split_at(actual);
                left = rest;
                let data = TensorData::new(values.to_vec(), shape);
                let gradient = B::InnerBackend::float_from_data(data, device);
                let gradient = Tensor::from_primitive(TensorPrimitive::Float(gradient));
                gradients.register::<B::InnerBackend, 1>(id, gradient);
            }
        }
        match actual == expected {
            true => Ok(gradients),
            false => Err(ParallelError::Layout { what: "float tensors", actual, expected }),
        }
    }

    /// The numbers, of the parameters that have a gradient.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// `true` for each parameter that has a gradient, in the order in which the module is visited.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// Every number times `factor`.
    pub fn scaled(mut self, factor: f32) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// The same with zeros for parameters of `present` that have no gradient here; `present` must hold all that have one.
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
        Self { lengths: self.lengths, present: present.to_vec(), values }
    }
}

impl Sum for FlatGradients {
    /// # Panics
    /// If they are of different modules.
    fn plus(self, right: Self) -> Self {
        assert_eq!(self.lengths, right.lengths, "gradients of one module");
        let both = self.present.iter().zip(&right.present);
        let present: Vec<_> = both.map(|(left, right)| *left || *right).collect();
        let (mut sum, right) = (self.spread(&present), right.spread(&present));
        sum.values.iter_mut().zip(right.values).for_each(|(sum, right)| *sum += right);
        sum
    }
}

/// The float tensors of a module in the order in which it is visited, each once.
fn float_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(ParamId, Shape)> {
    struct FloatTensors(Vec<(ParamId, Shape)>);

    impl<B: Backend> ModuleVisitor<B> for FloatTensors {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.push((param.id, param.val().shape()));
        }
    }

    let mut tensors = FloatTensors(Vec::new());
    module.visit(&mut tensors);
    let mut seen = HashSet::new();
    tensors.0.retain(|(id, _)| seen.insert(*id));
    tensors.0
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
        assert_eq!(error, ParallelError::Layout { what: "gradients", actual: 2, expected: 0 });
        let flat = FlatGradients::of::<B, _>(&layer, &gradients(&layer)).unwrap();
        let longer: Linear<B> = LinearConfig::new(3, 1).init(&Default::default());
        let error = flat.into_gradients::<B, _>(&longer, &Default::default()).unwrap_err();
        let what = "elements of a tensor";
        assert_eq!(error, ParallelError::Layout { what, actual: 2, expected: 3 });
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

    #[test]
    fn a_gradient_that_one_replica_lacks_counts_as_zero() {
        let flat = |present: [bool; 2], values: &[f32]| FlatGradients {
            lengths: vec![2, 1],
            present: present.to_vec(),
            values: values.to_vec(),
        };
        let sum = flat([true, false], &[1.0, 2.0]).plus(flat([false, true], &[5.0]));
        assert_eq!(sum, flat([true, true], &[1.0, 2.0, 5.0]));
        let more = sum.plus(flat([true, false], &[10.0, 10.0]));
        assert_eq!(more.values(), [11.0, 12.0, 5.0]);
    }
}
