//! What becomes of gradients.

use burn::optim::Optimizer;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::{DType, FloatDType, activation};
use fewshot_models::nn::{Linear, LinearConfig};

use super::*;
use crate::optim::{Adam, Sgd};

fn scale(value: f32) -> LossScale {
    let config = GradScalerConfig::new().with_init_scale(value).with_min_scale(1e-30);
    config.init().unwrap().loss_scale()
}

/// A layer, and a loss whose gradient is (3, 4) for its weight and 1 for its bias.
fn layer() -> (Linear<B>, Tensor<B, 1>) {
    let device = Default::default();
    let layer: Linear<B> = LinearConfig::new(2, 1).init(&device);
    let loss = layer.forward(Tensor::from_floats([[3.0, 4.0]], &device)).sum();
    (layer, loss)
}

fn finite(at: LossScale) -> (Linear<B>, FiniteGrads) {
    let (layer, loss) = layer();
    let gradients = at.scale(loss).backward(&layer).unscale::<B, _>(&layer).unwrap();
    (layer, gradients)
}

#[test]
fn scaled_gradients_are_the_scale_times_the_gradients() {
    for value in [1.0, 65536.0, 0.25] {
        let (layer, loss) = layer();
        let scaled = scale(value).scale(loss).backward(&layer);
        assert_eq!(scaled.scale().value(), value);
        let expected = [3.0, 4.0, 1.0].map(|gradient| gradient * value);
        assert_eq!(read(scaled.gradients(), &layer), expected);
        let (gradients, scale) = scaled.into_parts();
        let again = ScaledGrads::new(gradients, scale).unscale::<B, _>(&layer).unwrap();
        assert_eq!(read(again.gradients(), &layer), [3.0, 4.0, 1.0]);
    }
}

#[test]
fn a_chain_of_passes_gets_the_scaled_loss() {
    let (_, loss) = layer();
    let plain: f32 = loss.clone().into_scalar();
    let actual: f32 = scale(8.0).scale(loss).into_inner().into_scalar();
    assert_eq!(actual, 8.0 * plain);
}

#[test]
fn the_norm_is_that_of_the_unscaled_gradients() {
    for value in [1.0, 65536.0, 0.25, 3.0] {
        let (layer, gradients) = finite(scale(value));
        assert!((gradients.norm() - 26f64.sqrt()).abs() < 1e-6, "{value}: {}", gradients.norm());
        for (actual, expected) in read(gradients.gradients(), &layer).iter().zip([3.0, 4.0, 1.0]) {
            assert!((actual - expected).abs() < 1e-6, "{value}: {actual}");
        }
    }
}

#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
}

#[test]
fn a_network_has_the_same_gradients_at_a_scale_of_65536_and_of_1() {
    let device = Default::default();
    let network: Network<B> = Network {
        first: LinearConfig::new(3, 8).init(&device),
        second: LinearConfig::new(8, 2).init(&device),
    };
    let input = Tensor::from_floats([[0.3, -1.0, 2.0], [1.5, 0.2, -0.7]], &device);
    let gradients = |at: LossScale| {
        let hidden = activation::sigmoid(network.first.forward(input.clone()));
        let loss = network.second.forward(hidden).powi_scalar(2).mean();
        at.scale(loss).backward(&network).unscale::<B, _>(&network).unwrap()
    };
    let (one, many) = (gradients(LossScale::ONE), gradients(scale(65536.0)));
    let (left, right) = (read(one.gradients(), &network), read(many.gradients(), &network));
    assert_eq!(left.len(), 3 * 8 + 8 + 8 * 2 + 2);
    assert!(one.norm() > 1e-3);
    assert_eq!((left, one.norm()), (right, many.norm()));
}

#[test]
fn one_element_that_is_not_finite_spoils_the_step() {
    for (value, wrong) in [(1.0, f32::NAN), (64.0, f32::INFINITY), (3.0, f32::NEG_INFINITY)] {
        let (layer, loss) = layer();
        let (mut gradients, scale) = scale(value).scale(loss).backward(&layer).into_parts();
        let spoilt = Tensor::<Flex, 2>::from_floats([[1.0], [wrong]], &Default::default());
        gradients.register(layer.weight.id, spoilt);
        let actual = ScaledGrads::new(gradients, scale).unscale::<B, _>(&layer);
        assert_eq!(actual.err(), Some(NonFinite { scale }), "{wrong}");
    }
}

#[test]
fn a_gradient_is_looked_at_while_it_is_scaled() {
    // Four times 2^126 is no f32, 2^126 is.
    let module = single();
    let large = 2f32.powi(126);
    assert!(module.gradients(large, LossScale::ONE).unscale::<B, _>(&module).is_ok());
    assert!(module.gradients(large, scale(4.0)).unscale::<B, _>(&module).is_err());
}

#[test]
fn a_quotient_that_exceeds_its_format_is_no_finite_gradient() {
    let module = single();
    let large = Tensor::<Flex, 1>::from_floats([2f32.powi(126)], &Default::default());
    let mut gradients = GradientsParams::new();
    gradients.register(module.value.id, large);
    assert!(ScaledGrads::new(gradients, scale(0.25)).unscale::<B, _>(&module).is_err());
}

#[test]
fn clipping_cuts_the_norm_to_the_limit_and_keeps_the_direction() {
    let (layer, gradients) = finite(scale(16.0));
    let clipped = gradients.clip_norm::<B, _>(&layer, 2.0);
    assert_eq!(clipped.norm(), 2.0);
    let factor = 2.0 / 26f32.sqrt();
    for (actual, raw) in read(clipped.gradients(), &layer).iter().zip([3.0, 4.0, 1.0]) {
        assert!((actual - raw * factor).abs() < 1e-6);
    }
    let (layer, gradients) = finite(LossScale::ONE);
    let kept = gradients.clip_norm::<B, _>(&layer, 100.0);
    assert_eq!(read(kept.gradients(), &layer), [3.0, 4.0, 1.0]);
    assert!((kept.norm() - 26f64.sqrt()).abs() < 1e-6);
}

#[test]
#[should_panic(expected = "gradients cannot be clipped to a norm of NaN")]
fn a_limit_that_is_no_number_is_refused() {
    let (layer, gradients) = finite(LossScale::ONE);
    let _ = gradients.clip_norm::<B, _>(&layer, f64::NAN);
}

#[test]
fn a_step_follows_the_gradients_at_its_rate() {
    let module = single();
    let gradients = module.gradients(3.0, scale(65536.0)).unscale::<B, _>(&module).unwrap();
    let moved = gradients.step(&mut Sgd::new().init(), 0.5, module);
    assert_eq!(moved.read(), -1.5);
}

/// The parameter and the optimizer's record after some steps.
fn trained(slopes: &[f32]) -> (f32, Vec<u8>) {
    let (mut module, mut optimizer) = (single(), Adam::new().init());
    let mut scaler = GradScalerConfig::new().init().unwrap();
    for &slope in slopes {
        let gradients = module.gradients(slope, scaler.loss_scale());
        if let Ok(gradients) = scaler.unscale::<B, _>(gradients, &module).unwrap() {
            module = gradients.step(&mut optimizer, 0.1, module);
        }
    }
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::new();
    // Identifiers are drawn; what the state of the one parameter says is not.
    let record = Optimizer::<Single<B>, B>::to_record(&optimizer);
    let state = record.into_values().next().unwrap();
    (module.read(), Recorder::<B>::record(&recorder, state, ()).unwrap())
}

#[test]
fn a_skipped_step_leaves_no_trace_in_module_and_optimizer() {
    let with = trained(&[1.0, f32::NAN, -0.5, f32::INFINITY, f32::NEG_INFINITY, 2.0]);
    let without = trained(&[1.0, -0.5, 2.0]);
    assert_eq!(with, without);
    assert_ne!(trained(&[1.0, -0.5]), without);
}

#[test]
fn a_module_without_gradients_is_finite_and_stays() {
    let (layer, _) = layer();
    let none = ScaledGrads::new(GradientsParams::new(), scale(65536.0));
    let gradients = none.unscale::<B, _>(&layer).unwrap().clip_norm::<B, _>(&layer, 1.0);
    assert_eq!((gradients.norm(), gradients.gradients().len()), (0.0, 0));
    let before = layer.weight.val().into_data();
    let after = gradients.step(&mut Sgd::new().init(), 0.1, layer);
    assert_eq!(after.weight.val().into_data(), before);
}

#[derive(Module, Debug)]
struct Tied<B: Backend> {
    encoder: Param<Tensor<B, 1>>,
    decoder: Param<Tensor<B, 1>>,
}

#[test]
fn a_parameter_used_twice_is_counted_unscaled_and_clipped_once() {
    let weight = Param::from_tensor(Tensor::<B, 1>::from_floats([1.0, 2.0], &Default::default()));
    let tied = Tied { encoder: weight.clone(), decoder: weight };
    assert_eq!(tied.encoder.id, tied.decoder.id);
    let loss = (tied.encoder.val() * 2.0 + tied.decoder.val() * 3.0).sum();
    let finite = scale(64.0).scale(loss).backward(&tied).unscale::<B, _>(&tied).unwrap();
    assert!((finite.norm() - 50f64.sqrt()).abs() < 1e-6);
    assert_eq!(read(finite.gradients(), &tied), [5.0, 5.0, 5.0, 5.0]);
    let clipped = finite.clip_norm::<B, _>(&tied, 50f64.sqrt() / 5.0);
    for actual in read(clipped.gradients(), &tied) {
        assert!((actual - 1.0).abs() < 1e-6, "{actual}");
    }
}

fn of_type(dtype: FloatDType) -> Single<B> {
    let value = Tensor::<B, 1>::zeros([1], &Default::default()).cast(dtype);
    Single { value: Param::from_tensor(value) }
}

#[test]
fn gradients_in_half_precision_are_refused_before_the_scale_changes() {
    let cases = [(FloatDType::F16, DType::F16, "f16"), (FloatDType::BF16, DType::BF16, "bf16")];
    for (dtype, actual, name) in cases {
        let module = of_type(dtype);
        let config = GradScalerConfig::new().with_growth_interval(1);
        let mut scaler = config.init().unwrap();
        let before = scaler.state();
        let gradients = module.gradients(f32::NAN, scaler.loss_scale());
        let error = scaler.unscale::<B, _>(gradients, &module).unwrap_err();
        assert_eq!(error, ScaleError::HalfGradient { dtype: actual });
        let expected = "gradients to unscale must be f32 or f64, as their parameters, found";
        assert_eq!(error.to_string(), format!("{expected} {name}"));
        assert_eq!(scaler.state(), before);
    }
}

#[test]
#[should_panic(expected = "must be f32 or f64, as their parameters, found f16")]
fn without_a_scaler_gradients_in_half_precision_panic() {
    let module = of_type(FloatDType::F16);
    let _ = module.gradients(1.0, LossScale::ONE).unscale::<B, _>(&module);
}

#[test]
fn gradients_in_f64_stay_in_f64() {
    let module = of_type(FloatDType::F64);
    let finite = module.gradients(0.75, scale(65536.0)).unscale::<B, _>(&module).unwrap();
    assert_eq!(finite.norm(), 0.75);
    let gradient = finite.gradients().get::<Flex, 1>(module.value.id).unwrap();
    assert_eq!(gradient.dtype(), DType::F64);
    assert_eq!(gradient.into_data().iter::<f64>().collect::<Vec<_>>(), [0.75]);
    assert!(module.gradients(f32::NAN, LossScale::ONE).unscale::<B, _>(&module).is_err());
}

#[test]
#[should_panic(expected = "only 0 of 1 gradients are of the module's parameters")]
fn gradients_of_another_module_are_refused() {
    let module = single();
    let _ = module.gradients(1.0, scale(2.0)).unscale::<B, _>(&single());
}

#[test]
fn a_frozen_parameter_has_no_gradient_and_is_no_matter() {
    let (layer, _) = layer();
    let frozen = Linear { bias: layer.bias.map(|bias| bias.set_require_grad(false)), ..layer };
    let input = Tensor::from_floats([[3.0, 4.0]], &Default::default());
    let scaled = scale(4.0).scale(frozen.forward(input).sum()).backward(&frozen);
    let finite = scaled.unscale::<B, _>(&frozen).unwrap();
    assert_eq!((finite.norm(), finite.gradients().len()), (5.0, 1));
}

#[test]
#[should_panic(expected = "only 0 of 1 gradients are of the module's parameters")]
fn gradients_of_another_module_are_refused_on_a_device() {
    let module = single();
    let _ = module.gradients(1.0, LossScale::ONE).on_device::<B, _>(&single());
}

#[test]
#[should_panic(expected = "a loss that is not scaled")]
fn gradients_of_a_scaled_loss_are_read_from_the_device() {
    let module = single();
    let _ = module.gradients(1.0, scale(2.0)).on_device::<B, _>(&module);
}
