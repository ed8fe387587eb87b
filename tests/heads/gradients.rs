//! Whether gradients of parameters are central differences.

use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Tensor, TensorData};

/// A direction for a parameter of this shape, alike for all of that shape.
fn direction<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|at| (1.7 * at as f32 + 0.3).cos()).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

struct Moved(f64);

impl<B: Backend> ModuleMapper<B> for Moved {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let step = self.0;
        param.map(|value| {
            let way = direction(value.dims(), &value.device());
            (value + way * step).detach()
        })
    }
}

struct Along {
    gradients: GradientsParams,
    found: Vec<f32>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Along {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id) else { return };
        let way = direction::<B::InnerBackend, D>(gradient.dims(), &gradient.device());
        self.found.push((gradient * way).sum().into_scalar().elem());
    }
}

/// Asserts that the gradient of `value` by all `count` parameters of `module` together is the
/// quotient of differences over a step `h` to both sides along a direction.
pub fn are_differences<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    count: usize,
    h: f64,
    value: impl Fn(&M) -> Tensor<B, 1>,
) {
    let gradients = GradientsParams::from_grads(value(module).backward(), module);
    let mut along = Along { gradients, found: Vec::new() };
    Module::<B>::visit(module, &mut along);
    assert_eq!(along.found.len(), count, "parameters with a gradient");
    let along: f32 = along.found.iter().sum();
    let at =
        |step: f64| -> f32 { value(&module.clone().map(&mut Moved(step))).into_scalar().elem() };
    let difference = (at(h) - at(-h)) / (2.0 * h as f32);
    let allowed = 1e-2 * difference.abs().max(along.abs());
    assert!((difference - along).abs() <= allowed, "gradient {along}, difference {difference}");
    assert!(along.abs() > 1e-3, "too flat to tell: {along}");
}
