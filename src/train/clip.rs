use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;

use crate::precision::{measured, multiplied};

/// Scales all gradients of `module` so that their joint Euclidean norm is at most `limit`.
///
/// Returns them with the norm they had; where that is not finite, they stay as they are. The device
/// is read from once.
///
/// # Conventions
/// One norm over all parameters, as `torch.nn.utils.clip_grad_norm_`; Burn's `GradientClipping` takes
/// the norm of each tensor by itself. The divisor is not padded by 1e-6 as PyTorch's is.
pub fn clip_global_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    gradients: GradientsParams,
    module: &M,
    limit: f64,
) -> (GradientsParams, f64) {
    let (gradients, norm) = measured::<B, M>(gradients, module, 1.0);
    if norm.is_finite() && norm > limit {
        return (multiplied::<B, M>(gradients, module, limit / norm), norm);
    }
    (gradients, norm)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use burn::tensor::Tensor;
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
