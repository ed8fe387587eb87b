use burn::module::Module;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;

use super::{assert_close, on_backend, on_every_backend, random, read, tensor};
use crate::plasticity::{
    Activation, Hebb, Oja, PlasticLinear, PlasticLinearConfig, Rate, Reactive, Sources,
    explained_variance, row_norm,
};

on_every_backend! {
    a_layer_adapts_by_its_rule_and_answers_as_before
    a_clamped_output_is_what_is_learned
    a_rate_of_zero_keeps_the_weight
    a_reactive_layer_gets_used_to_a_constant
    a_reactive_layer_of_one_tick_gives_differences
    changes_surprise_more_than_what_is_usual
    sources_have_the_directions_and_powers_they_say
    oja_explains_what_the_first_source_does
}

fn a_layer_adapts_by_its_rule_and_answers_as_before<B: Backend>() {
    let layer = PlasticLinear::<B>::from_weight(tensor(&[0.5, -0.25], [1, 2]));
    let x = tensor::<B, 2>(&[2.0, 1.0], [1, 2]);
    let before = layer.clone();
    let (after, ()) = layer.adapt(x.clone(), &Oja, (), &Rate::Fixed(0.1));
    assert_close("old", &read(before.forward(x.clone())), &[0.75], 1e-6);
    assert_close("new", &read(after.weight.val()), &[0.621875, -0.1609375], 1e-6);
    assert_close("new", &read(after.forward(x)), &[1.0828125], 1e-6);
}

fn a_clamped_output_is_what_is_learned<B: Backend>() {
    let layer = PlasticLinear::<B>::from_weight(tensor(&[0.5, -0.25], [1, 2]));
    let (x, y) = (tensor::<B, 2>(&[2.0, 1.0], [1, 2]), tensor::<B, 2>(&[-1.0], [1, 1]));
    let (layer, ()) = layer.learn(x, y, &Hebb::new(), (), &Rate::Fixed(0.1));
    assert_close("weight", &read(layer.weight.val()), &[0.3, -0.35], 1e-6);
}

fn a_rate_of_zero_keeps_the_weight<B: Backend>() {
    for activation in [Activation::Linear, Activation::Tanh, Activation::Relu] {
        let config = PlasticLinearConfig::new(4, 3).with_activation(activation);
        let layer = config.init::<B>(&Default::default());
        let before = read(layer.weight.val());
        assert!(before.iter().all(|value| value.abs() <= 0.5), "{before:?}");
        let (layer, ()) = layer.adapt(random(1, [2, 4]), &Oja, (), &Rate::Fixed(0.0));
        assert_eq!(read(layer.weight.val()), before);
    }
}

fn a_reactive_layer_gets_used_to_a_constant<B: Backend>() {
    let layer = Reactive::new(4.0).unwrap();
    let quiet = tensor::<B, 2>(&[1.0, -2.0], [1, 2]);
    let loud = quiet.clone() + 3.0;
    let mut reaction = layer.forward(quiet, None);
    assert_eq!(read(reaction.deviation.clone()), [0.0, 0.0]);
    assert_eq!(read(reaction.surprise.clone()), [0.0]);
    for tick in 0..20 {
        reaction = layer.forward(loud.clone(), Some(reaction.expectation));
        let expected = 3.0 * 0.75f32.powi(tick);
        assert_close("deviation", &read(reaction.deviation.clone()), &[expected; 2], 1e-4);
    }
}

fn a_reactive_layer_of_one_tick_gives_differences<B: Backend>() {
    let layer = Reactive::new(1.0).unwrap();
    let expectation = layer.forward(tensor::<B, 2>(&[1.0, 5.0], [2, 1]), None).expectation;
    let reaction = layer.forward(tensor(&[4.0, 3.0], [2, 1]), Some(expectation));
    assert_close("deviation", &read(reaction.deviation), &[3.0, -2.0], 1e-6);
}

fn changes_surprise_more_than_what_is_usual<B: Backend>() {
    let layer = Reactive::new(50.0).unwrap();
    let xs = random::<B, 2>(3, [400, 8]);
    let mut expectation = None;
    let mut usual = 0.0;
    for tick in 0..400 {
        let reaction = layer.forward(xs.clone().narrow(0, tick, 1), expectation);
        usual += if tick >= 200 { read(reaction.surprise)[0] / 200.0 } else { 0.0 };
        expectation = Some(reaction.expectation);
    }
    assert!((0.7..1.4).contains(&usual), "{usual}");
    let jump = layer.forward(xs.narrow(0, 0, 1) + 5.0, expectation);
    assert!(read(jump.surprise)[0] > 10.0 * usual);
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
        (layer, ()) = layer.adapt(x, &Oja, (), &Rate::Fixed(0.1));
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

#[test]
fn a_layer_is_saved_and_loaded_like_any_module() {
    type B = burn::backend::Flex;
    let device = Default::default();
    let layer = PlasticLinearConfig::new(4, 3).init::<B>(&device);
    let (layer, ()) = layer.adapt(random(1, [2, 4]), &Oja, (), &Rate::Fixed(0.1));
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = recorder.record(layer.clone().into_record(), ()).unwrap();
    let fresh = PlasticLinearConfig::new(4, 3).init::<B>(&device);
    let loaded = fresh.load_record(recorder.load(bytes, &device).unwrap());
    assert_eq!(read(loaded.weight.val()), read(layer.weight.val()));
}
