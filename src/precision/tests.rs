mod golden;
mod gradients;
mod scaler;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::*;

type B = Autodiff<Flex>;

/// One parameter `[1]`, and so one gradient.
#[derive(Module, Debug)]
struct Single<B: Backend> {
    value: Param<Tensor<B, 1>>,
}

fn single() -> Single<B> {
    Single { value: Param::from_tensor(Tensor::zeros([1], &Default::default())) }
}

impl Single<B> {
    /// Gradients of a loss that rises with `slope`.
    fn gradients(&self, slope: f32, scale: LossScale) -> ScaledGrads {
        scale.scale((self.value.val() * slope).sum()).backward(self)
    }

    fn read(&self) -> f32 {
        self.value.val().into_scalar()
    }
}

/// All gradients of a module, in the order of its parameters.
fn read<M: AutodiffModule<B>>(gradients: &GradientsParams, module: &M) -> Vec<f32> {
    let mut reading = Reading { gradients, actual: Vec::new() };
    module.visit(&mut reading);
    reading.actual
}

struct Reading<'a> {
    gradients: &'a GradientsParams,
    actual: Vec<f32>,
}

impl ModuleVisitor<B> for Reading<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.get::<Flex, D>(param.id) {
            self.actual.extend(gradient.into_data().iter::<f32>());
        }
    }
}
