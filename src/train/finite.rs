use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};

/// True if every float parameter and running statistic of `module` is a finite number.
pub(super) fn all_finite<B: Backend, M: Module<B>>(module: &M) -> bool {
    let mut sum = Sum::<B>(None);
    module.visit(&mut sum);
    // A difference with itself is 0 for finite numbers and NaN for all others.
    sum.0.is_none_or(|sum| sum.into_scalar().elem::<f32>() == 0.0)
}

struct Sum<B: Backend>(Option<Tensor<B, 1>>);

impl<B: Backend> ModuleVisitor<B> for Sum<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val().detach();
        let sum = (value.clone() - value).sum();
        self.0 = Some(match self.0.take() {
            Some(total) => total + sum,
            None => sum,
        });
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::module::Param;
    use fewshot_models::nn::{Linear, LinearConfig};

    use super::*;

    fn layer_with(value: f32) -> Linear<Flex> {
        let device = Default::default();
        let mut layer: Linear<Flex> = LinearConfig::new(1, 2).init(&device);
        layer.bias = Some(Param::from_tensor(Tensor::from_floats([value, 1.0], &device)));
        layer
    }

    #[test]
    fn one_number_that_is_not_finite_is_found() {
        assert!(all_finite::<Flex, _>(&layer_with(1e30)));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!all_finite::<Flex, _>(&layer_with(value)), "{value}");
        }
    }
}
