//! Rates relative to the power of the inputs, and bounds.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{assert_close, on_accelerators, on_backend, on_every_backend, random, read, tensor};
use crate::plasticity::{
    Aggregate, Bcm, Coefficients, Hebb, HierarchyConfig, Oja, PlasticLinear, PlasticityRule, Rate,
    Sanger, TemporalHierarchy, largest_rate,
};

on_every_backend! {
    inputs_of_zeros_teach_nothing_and_decay_goes_on
    a_relative_rate_is_a_share_of_the_largest
    a_decay_is_not_relative
    every_layer_has_a_bound_from_what_it_saw_first
}

fn one_layer<B: Backend>(weight: &[f32]) -> TemporalHierarchy<B> {
    let layer = PlasticLinear::from_weight(tensor(weight, [1, weight.len()]));
    TemporalHierarchy::new(vec![layer], &[1], Aggregate::Last).unwrap()
}

/// The weight of one neuron, `[0.5, -0.25]` at first, after each of some inputs.
fn after<B: Backend, R: PlasticityRule<B>>(rule: R, rate: f64, inputs: &[[f32; 2]]) -> Vec<f32> {
    let start = one_layer::<B>(&[0.5, -0.25]).start(rule, Rate::Fixed(rate));
    let running = inputs.iter().fold(start.with_relative_rates(10.0).unwrap(), |running, x| {
        running.step(tensor(x, [1, 2])).unwrap()
    });
    read(running.hierarchy().layers()[0].weight.val())
}

fn inputs_of_zeros_teach_nothing_and_decay_goes_on<B: Backend>() {
    let decaying = Hebb::new().with_decay(0.5).unwrap();
    let decayed = after::<B, _>(decaying, 0.1, &[[0.0; 2]]);
    assert_close("hebb", &decayed, &[0.475, -0.2375], 1e-6);
    let general = Coefficients::new([1.0, 2.0, 3.0, 4.0], &Default::default()).unwrap();
    assert_close("coefficients", &after::<B, _>(general, 0.1, &[[0.0; 2]]), &[0.5, -0.25], 0.0);
    let tiny = after::<B, _>(Oja, 0.1, &[[0.0; 2], [1e-30, 0.0]]);
    assert_close("oja", &tiny, &[0.5, -0.25], 0.0);
}

/// Of `x = (2, 1)`, `y = 0.75` and a power of 5, with the power of the first input for the second.
fn a_relative_rate_is_a_share_of_the_largest<B: Backend>() {
    let actual = after::<B, _>(Oja, 0.5, &[[2.0, 1.0]]);
    assert_close("oja", &actual, &[0.621875, -0.1609375], 1e-6);
    assert_close("sanger", &after::<B, _>(Sanger, 0.5, &[[2.0, 1.0]]), &actual, 1e-6);
    // y = 0.65 and -0.175 with x = (1, 0): the mean power is 5 - 0.4.
    let twice = after::<B, _>(Hebb::new(), 0.5, &[[2.0, 1.0], [1.0, 0.0]]);
    assert_close("hebb", &twice, &[0.65 + 0.5 / 4.6 * 0.65, -0.175], 1e-6);
}

fn a_decay_is_not_relative<B: Backend>() {
    let decaying = Hebb::new().with_decay(0.5).unwrap();
    // As of an unscaled rate of 0.5 for the decay, and of 0.1 for the growth.
    let actual = after::<B, _>(decaying, 0.5, &[[2.0, 1.0]]);
    assert_close("hebb", &actual, &[0.75 * 0.5 + 0.15, -0.25 * 0.75 + 0.075], 1e-6);
}

fn every_layer_has_a_bound_from_what_it_saw_first<B: Backend>() {
    let device = Default::default();
    B::seed(&device, 1);
    let config = HierarchyConfig::new(vec![3, 4, 2], vec![1, 2]);
    let hierarchy = config.init::<B>(&device).unwrap();
    let x = random::<B, 2>(4, [2, 3]);
    let above = hierarchy.layers()[0].forward(x.clone());
    let expected = [largest_rate(x.clone()) as f32, largest_rate(above) as f32];
    let bounds = |rule: Oja, xs: &[Tensor<B, 2>]| {
        let start = hierarchy.start(rule, Rate::Fixed(0.01));
        let running = xs.iter().fold(start, |running, x| running.step(x.clone()).unwrap());
        running.bounds()
    };
    assert_eq!(bounds(Oja, &[]), [None, None]);
    assert_eq!(bounds(Oja, &[x.zeros_like()]), [None, None]);
    let actual = |xs: &[Tensor<B, 2>]| -> Vec<f32> {
        bounds(Oja, xs).into_iter().map(|bound| bound.unwrap() as f32).collect()
    };
    assert_close("bounds", &actual(std::slice::from_ref(&x)), &expected, 1e-4 * expected[1]);
    let later = actual(&[x.clone(), x.clone() * 9.0, x.clone() * 9.0]);
    assert_close("later", &later, &expected, 1e-4 * expected[1]);
    let relative = hierarchy.start(Oja, Rate::Fixed(0.1)).with_relative_rates(5.0).unwrap();
    assert_eq!(relative.step(x.clone()).unwrap().bounds(), [Some(1.0); 2]);
    let unbounded = hierarchy.start(Bcm::new(9.0).unwrap(), Rate::Fixed(0.1)).step(x).unwrap();
    assert_eq!(unbounded.bounds(), [None, None]);
}
