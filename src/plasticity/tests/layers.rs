use burn::module::Module;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;

use super::{assert_close, on_accelerators, on_backend, on_every_backend, random, read, tensor};
use crate::plasticity::{
    Activation, Hebb, Oja, PlasticLinear, PlasticLinearConfig, Rate, Sources, explained_variance,
    row_norm,
};

on_every_backend! {
    a_layer_adapts_by_its_rule_and_answers_as_before
    a_clamped_output_is_what_is_learned
    a_rate_of_zero_keeps_the_weight
    sources_have_the_directions_and_powers_they_say
    oja_explains_what_the_first_source_does
    the_explained_variance_has_no_scale
}

fn a_layer_adapts_by_its_rule_and_answers_as_before<B: Backend>() {
    let layer = PlasticLinear::<B>::from_weight(tensor(&[0.5, -0.25], [1, 2]));
    let x = tensor::<B, 2>(&[2.0, 1.0], [1, 2]);
    let before = layer.clone();
    let (after, _) = layer.adapt(x.clone(), &Oja, [None, None], &Rate::Fixed(0.1));
    assert_close("old", &read(before.forward(x.clone())), &[0.75], 1e-6);
    assert_close("new", &read(after.weight.val()), &[0.621875, -0.1609375], 1e-6);
    assert_close("new", &read(after.forward(x)), &[1.0828125], 1e-6);
}

fn a_clamped_output_is_what_is_learned<B: Backend>() {
    let layer = PlasticLinear::<B>::from_weight(tensor(&[0.5, -0.25], [1, 2]));
    let (x, y) = (tensor::<B, 2>(&[2.0, 1.0], [1, 2]), tensor::<B, 2>(&[-1.0], [1, 1]));
    let (layer, _) = layer.learn(x, y, &Hebb::new(), [None, None], &Rate::Fixed(0.1));
    assert_close("weight", &read(layer.weight.val()), &[0.3, -0.35], 1e-6);
}

fn a_rate_of_zero_keeps_the_weight<B: Backend>() {
    for activation in [Activation::Linear, Activation::Tanh, Activation::Relu] {
        let config = PlasticLinearConfig::new(4, 3).with_activation(activation);
        let layer = config.init::<B>(&Default::default());
        let before = read(layer.weight.val());
        assert!(before.iter().all(|value| value.abs() <= 0.5), "{before:?}");
        let (layer, _) = layer.adapt(random(1, [2, 4]), &Oja, [None, None], &Rate::Fixed(0.0));
        assert_eq!(read(layer.weight.val()), before);
    }
}

fn sources_have_the_directions_and_powers_they_say<B: Backend>() {
    let sources = Sources::new(12, 3, 7).unwrap();
    let xs = sources.stream(4).next::<B>(4000, &Default::default()).reshape([16_000, 12]);
    for k in 0..3 {
        let direction = tensor::<B, 2>(&sources.direction(k), [12, 1]);
        let along = xs.clone().matmul(direction);
        let power = read((along.clone() * along).mean())[0];
        let expected = sources.power(k) as f32;
        assert!((power / expected - 1.0).abs() < 0.1, "source {k}: {power}, not {expected}");
    }
    let power = read((xs.clone() * xs).mean())[0] * 12.0;
    assert!((power - 1.0).abs() < 0.1, "{power}");
}

fn oja_explains_what_the_first_source_does<B: Backend>() {
    let sources = Sources::new(10, 4, 1).unwrap();
    let device = Default::default();
    B::seed(&device, 1);
    let mut layer = PlasticLinearConfig::new(10, 2).init::<B>(&device);
    let xs = sources.stream(8).next::<B>(400, &device);
    for tick in 0..400 {
        let x = xs.clone().narrow(1, tick, 1).reshape([8, 10]);
        (layer, _) = layer.adapt(x, &Oja, [None, None], &Rate::Fixed(0.1));
    }
    let first = tensor::<B, 2>(&sources.direction(0), [10, 1]);
    for along in read(layer.weight.val().matmul(first)) {
        assert!(along.abs() > 0.97, "{along}");
    }
    assert!((row_norm(layer.weight.val()) - 1.0).abs() < 0.1);
    let all = xs.reshape([3200, 10]);
    let explained = explained_variance(layer.weight.val(), all);
    assert!((explained - sources.power(0)).abs() < 0.06, "{explained}");
}

/// A row along the first of two orthogonal inputs explains 4 of 5.
fn the_explained_variance_has_no_scale<B: Backend>() {
    let x = tensor::<B, 2>(&[2.0, 0.0, 0.0, 1.0], [2, 2]);
    let weight = tensor::<B, 2>(&[0.7, 0.0], [1, 2]);
    for scale in [1e-15, 1.0, 1e15] {
        for (weight, x) in [
            (weight.clone() * scale, x.clone()),
            (weight.clone(), x.clone() * scale),
            (weight.clone() * scale, x.clone() * scale),
        ] {
            let explained = explained_variance(weight, x);
            assert!((explained - 0.8).abs() < 1e-5, "{explained} at a scale of {scale}");
        }
    }
    let across = tensor::<B, 2>(&[0.0, 1.0], [1, 2]);
    let along = x.clone().narrow(0, 0, 1);
    assert_eq!(explained_variance(across, along), 0.0);
    assert_eq!(explained_variance(weight.zeros_like(), x.clone()), 0.0);
    assert_eq!(explained_variance(weight.clone(), x.zeros_like()), 1.0);
    assert!(explained_variance(weight / 0.0, x).is_nan());
}

#[test]
fn a_layer_is_saved_and_loaded_like_any_module() {
    type B = burn::backend::Flex;
    let device = Default::default();
    let layer = PlasticLinearConfig::new(4, 3).init::<B>(&device);
    let (layer, _) = layer.adapt(random(1, [2, 4]), &Oja, [None, None], &Rate::Fixed(0.1));
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = recorder.record(layer.clone().into_record(), ()).unwrap();
    let fresh = PlasticLinearConfig::new(4, 3).init::<B>(&device);
    let loaded = fresh.load_record(recorder.load(bytes, &device).unwrap());
    assert_eq!(read(loaded.weight.val()), read(layer.weight.val()));
}
