use std::collections::HashSet;

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use fewshot_kernels::grad_stats;

/// Scales all gradients of `module` so that their joint Euclidean norm is at most `limit`.
///
/// Returns them with the norm they had; where that is not finite, they stay as they are. The device
/// is read from once.
///
/// # Conventions
/// One norm over all parameters, as `torch.nn.utils.clip_grad_norm_`; Burn's `GradientClipping` takes
/// the norm of each tensor by itself. The divisor is not padded by 1e-6 as PyTorch's is.
pub fn clip_global_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut gradients: GradientsParams,
    module: &M,
    limit: f64,
) -> (GradientsParams, f64) {
    let mut found = Found::<B> { gradients: &gradients, tensors: Vec::new(), seen: HashSet::new() };
    module.visit(&mut found);
    let (tensors, stats) = grad_stats::<B::InnerBackend>(found.tensors, 1.0);
    drop(tensors);
    let norm = stats.norm;
    if stats.is_finite() && norm > limit {
        let factor = limit / norm;
        module.visit(&mut Scale { gradients: &mut gradients, factor });
    }
    (gradients, norm)
}

struct Found<'a, B: AutodiffBackend> {
    gradients: &'a GradientsParams,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
    /// A parameter that a module has twice has one gradient.
    seen: HashSet<ParamId>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Found<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id)
            && self.seen.insert(param.id)
        {
            self.tensors.push(gradient.into_primitive().tensor());
        }
    }
}

struct Scale<'a> {
    gradients: &'a mut GradientsParams,
    factor: f64,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            let scaled = gradient * self.factor;
            self.gradients.register::<B::InnerBackend, D>(param.id, scaled);
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use fewshot_models::nn::{Linear, LinearConfig};

    use super::*;

    type B = Autodiff<Flex>;

    fn clipped(limit: f64) -> (Vec<f32>, f64) {
        let device = Default::default();
        let layer: Linear<B> = LinearConfig::new(2, 1).init(&device);
        let input = Tensor::<B, 2>::from_floats([[3.0, 4.0]], &device);
        // The gradient is (3, 4) for the weight and 1 for the bias.
        let gradients = GradientsParams::from_grads(layer.forward(input).backward(), &layer);
        let (gradients, norm) = clip_global_norm(gradients, &layer, limit);
        let weight = gradients.get::<Flex, 2>(layer.weight.id).unwrap().into_data();
        let bias = gradients.get::<Flex, 1>(layer.bias.unwrap().id).unwrap().into_data();
        let all = weight.iter::<f32>().chain(bias.iter::<f32>());
        (all.collect(), norm)
    }

    #[test]
    fn a_long_gradient_is_cut_to_the_limit_and_keeps_its_direction() {
        let (gradient, norm) = clipped(2.0);
        assert!((norm - 26f64.sqrt()).abs() < 1e-6);
        let factor = 2.0 / 26f32.sqrt();
        for (found, raw) in gradient.iter().zip([3.0, 4.0, 1.0]) {
            assert!((found - raw * factor).abs() < 1e-6);
        }
    }

    #[test]
    fn a_short_gradient_stays_as_it_is() {
        assert_eq!(clipped(100.0).0, [3.0, 4.0, 1.0]);
    }
}
