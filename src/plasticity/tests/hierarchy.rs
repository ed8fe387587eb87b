use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{assert_close, on_accelerators, on_backend, on_every_backend, random, read, tensor};
use crate::plasticity::{
    Activation, Aggregate, Bcm, Hebb, HierarchyConfig, Oja, PlasticLinear, PlasticityError, Rate,
    Subspace, TemporalHierarchy,
};

on_every_backend! {
    layers_fire_once_a_period_and_as_often_as_it_fits
    whole_sequences_give_what_tick_after_tick_gives
    windows_hold_what_came_since_the_last_firing
    a_sequence_in_parts_is_the_sequence
    layers_learn_when_they_fire_from_what_they_see
    parents_amplify_what_they_expect_a_tick_later
    layers_hold_their_output_between_firings
    inputs_that_are_not_finite_are_refused
}

const AGGREGATES: [Aggregate; 3] = [Aggregate::Last, Aggregate::Mean, Aggregate::Concat];

fn config(aggregate: Aggregate) -> HierarchyConfig {
    HierarchyConfig::new(vec![3, 4, 5, 2], vec![1, 2, 6]).with_aggregate(aggregate)
}

fn drawn<B: Backend>(config: &HierarchyConfig) -> TemporalHierarchy<B> {
    let device = Default::default();
    B::seed(&device, 1);
    config.init(&device).unwrap()
}

fn weights<B: Backend>(hierarchy: &TemporalHierarchy<B>) -> Vec<f32> {
    hierarchy.layers().iter().flat_map(|layer| read(layer.weight.val())).collect()
}

fn layers_fire_once_a_period_and_as_often_as_it_fits<B: Backend>() {
    let hierarchy = drawn::<B>(&config(Aggregate::Mean));
    for ticks in [1, 2, 6, 7, 13] {
        let xs = random::<B, 3>(1, [2, ticks, 3]);
        let (running, firings) = hierarchy.start(Oja, Rate::Fixed(0.01)).run(xs).unwrap();
        for (firings, (period, neurons)) in firings.iter().zip([(1, 4), (2, 5), (6, 2)]) {
            assert_eq!(firings.outputs.dims(), [2, ticks.div_ceil(period), neurons]);
            assert_eq!(firings.period, period);
        }
        assert_eq!((firings.len(), running.tick()), (3, ticks));
    }
}

fn whole_sequences_give_what_tick_after_tick_gives<B: Backend>() {
    for aggregate in AGGREGATES {
        for (ticks, periods) in [(1, vec![1, 2, 6]), (7, vec![1, 2, 6]), (13, vec![2, 4, 12])] {
            let config = HierarchyConfig { periods, ..config(aggregate) };
            let hierarchy = drawn::<B>(&config.with_activation(Activation::Tanh));
            let xs = random::<B, 3>(2, [3, ticks, 3]);
            let whole = hierarchy.forward(xs.clone()).unwrap();
            let (running, stepped) =
                hierarchy.start(Hebb::new(), Rate::Fixed(0.0)).run(xs).unwrap();
            assert_eq!(whole.len(), stepped.len());
            for (layer, (whole, stepped)) in whole.into_iter().zip(stepped).enumerate() {
                assert_eq!(whole.outputs.dims(), stepped.outputs.dims());
                let what = format!("{aggregate:?}, layer {layer}");
                assert_close(&what, &read(whole.outputs), &read(stepped.outputs), 1e-5);
            }
            assert_eq!(weights(running.hierarchy()), weights(&hierarchy));
        }
    }
}

/// One input value, seen by a neuron that passes it on.
fn windows_hold_what_came_since_the_last_firing<B: Backend>() {
    let seen = |aggregate, weight: &[f32]| {
        let pass = PlasticLinear::<B>::from_weight(tensor(&[1.0], [1, 1]));
        let parent = PlasticLinear::from_weight(tensor(weight, [1, weight.len()]));
        let hierarchy = TemporalHierarchy::new(vec![pass, parent], &[1, 3], aggregate).unwrap();
        let xs = tensor::<B, 3>(&[1.0, 2.0, 4.0, 9.0, 5.0], [1, 5, 1]);
        read(hierarchy.forward(xs).unwrap().remove(1).outputs)
    };
    assert_close("last", &seen(Aggregate::Last, &[1.0]), &[1.0, 9.0], 1e-6);
    assert_close("mean", &seen(Aggregate::Mean, &[1.0]), &[1.0, 5.0], 1e-6);
    let all = seen(Aggregate::Concat, &[100.0, 10.0, 1.0]);
    assert_close("all", &all, &[111.0, 249.0], 1e-4);
}

fn a_sequence_in_parts_is_the_sequence<B: Backend>() {
    for aggregate in AGGREGATES {
        let hierarchy = drawn::<B>(&config(aggregate));
        let xs = random::<B, 3>(3, [2, 9, 3]);
        let whole = hierarchy.start(Oja, Rate::Fixed(0.05)).learn(xs.clone()).unwrap();
        let mut parts = hierarchy.start(Oja, Rate::Fixed(0.05));
        for (first, length) in [(0, 4), (4, 1), (5, 4)] {
            parts = parts.run(xs.clone().narrow(1, first, length)).unwrap().0;
        }
        assert_eq!(weights(whole.hierarchy()), weights(parts.hierarchy()));
        assert_ne!(weights(whole.hierarchy()), weights(&hierarchy));
        let mut steps = hierarchy.start(Oja, Rate::Fixed(0.05));
        for tick in 0..9 {
            steps = steps.step(xs.clone().narrow(1, tick, 1).reshape([2, 3])).unwrap();
        }
        assert_eq!(weights(whole.hierarchy()), weights(steps.hierarchy()));
    }
}

/// By hand, with one rule for the two layers of a hierarchy of periods 1 and 2.
fn layers_learn_when_they_fire_from_what_they_see<B: Backend>() {
    let config = HierarchyConfig::new(vec![3, 4, 2], vec![1, 2]);
    let hierarchy = drawn::<B>(&config);
    let rate = Rate::Fixed(0.1);
    let rule = Bcm::new(5.0).unwrap();
    let xs = random::<B, 3>(4, [2, 3, 3]);
    let running = hierarchy.start(rule, rate.clone()).learn(xs.clone()).unwrap();
    let at = |tick| xs.clone().narrow(1, tick, 1).reshape([2, 3]);
    let [child, parent] = [0, 1].map(|index| hierarchy.layers()[index].clone());
    let thresholds =
        |neurons| [None, Some(Tensor::<B, 2>::ones([1, neurons], &Default::default()))];
    let first = child.forward(at(0));
    let (child, state) = child.adapt(at(0), &rule, thresholds(4), &rate);
    let (parent, above) = parent.adapt(first, &rule, thresholds(2), &rate);
    let second = child.forward(at(1));
    let (child, state) = child.adapt(at(1), &rule, state, &rate);
    let third = child.forward(at(2));
    let (child, _) = child.adapt(at(2), &rule, state, &rate);
    let (parent, _) = parent.adapt((second + third) / 2.0, &rule, above, &rate);
    let expected = [read(child.weight.val()), read(parent.weight.val())].concat();
    assert_close("weights", &weights(running.hierarchy()), &expected, 1e-6);
}

fn parents_amplify_what_they_expect_a_tick_later<B: Backend>() {
    let layer = |weight: f32| PlasticLinear::<B>::from_weight(tensor(&[weight], [1, 1]));
    let plain = TemporalHierarchy::new(vec![layer(1.0), layer(0.5)], &[1, 2], Aggregate::Last);
    let hierarchy = plain.unwrap().with_top_down(0.2).unwrap();
    let xs = tensor::<B, 3>(&[2.0, 2.0, 2.0, 2.0], [1, 4, 1]);
    let child = read(hierarchy.forward(xs).unwrap().remove(0).outputs);
    // The parent gives 1 at tick 0 and thinks of its child 0.5 times that.
    let once = 2.0 * (1.0 + 0.2 * 0.5f32.tanh());
    let twice = 2.0 * (1.0 + 0.2 * (0.25 * once).tanh());
    assert_close("child", &child, &[2.0, once, once, twice], 1e-5);
}

fn layers_hold_their_output_between_firings<B: Backend>() {
    let layer = |weight: f32| PlasticLinear::<B>::from_weight(tensor(&[weight], [1, 1]));
    let layers = vec![layer(1.0), layer(0.5)];
    let hierarchy = TemporalHierarchy::new(layers, &[1, 2], Aggregate::Mean).unwrap();
    let mut running = hierarchy.start(Hebb::new(), Rate::Fixed(0.0));
    assert!(running.output(0).is_none() && running.output(1).is_none());
    for (x, held) in [(2.0, [2.0, 1.0]), (4.0, [4.0, 1.0]), (8.0, [8.0, 3.0])] {
        running = running.step(tensor(&[x], [1, 1])).unwrap();
        let actual = [0, 1].map(|layer| read(running.output(layer).unwrap())[0]);
        assert_close("held", &actual, &held, 1e-6);
    }
}

fn inputs_that_are_not_finite_are_refused<B: Backend>() {
    let hierarchy = drawn::<B>(&config(Aggregate::Mean));
    let start = || hierarchy.start(Subspace, Rate::Fixed(0.1));
    for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let x = tensor::<B, 2>(&[0.0, broken, 0.0], [1, 3]);
        assert_eq!(start().step(x.clone()).unwrap_err(), PlasticityError::NotFinite { tick: 0 });
        let begun = start().step(random(1, [1, 3])).unwrap();
        let error = begun.run(x.clone().unsqueeze_dim(1)).unwrap_err();
        assert_eq!(error, PlasticityError::NotFinite { tick: 1 });
        assert!(hierarchy.forward(x.unsqueeze_dim(1)).is_err());
    }
    assert!(start().step(tensor(&[3e38, -3e38, 0.0], [1, 3])).is_ok());
}

type F = burn::backend::Flex;

fn refused(config: HierarchyConfig) -> PlasticityError {
    config.init::<F>(&Default::default()).unwrap_err()
}

#[test]
fn sizes_and_periods_that_do_not_fit_are_errors_with_numbers() {
    let new = |levels: &[usize], periods: &[usize]| {
        HierarchyConfig::new(levels.to_vec(), periods.to_vec())
    };
    assert_eq!(refused(new(&[3], &[])), PlasticityError::NoLayers { actual: 1 });
    let periods = PlasticityError::Periods { layers: 2, actual: 3 };
    assert_eq!(refused(new(&[3, 4, 5], &[1, 2, 4])), periods);
    let error = refused(new(&[3, 4, 5], &[2, 3]));
    assert_eq!(error, PlasticityError::Period { layer: 2, below: 2, actual: 3 });
    assert_eq!(error.to_string(), "period 3 of layer 2 is no multiple of 2, the period below it");
    assert!(matches!(refused(new(&[3, 4], &[0])), PlasticityError::Period { actual: 0, .. }));
    assert!(matches!(refused(new(&[3, 0], &[1])), PlasticityError::Setting { .. }));
    let gain = new(&[3, 4, 5], &[1, 2]).with_aggregate(Aggregate::Concat).with_top_down(0.1);
    assert_eq!(refused(gain), PlasticityError::FeedbackIntoWindow);
    let layers = [[3, 4], [5, 2]]
        .map(|[inputs, neurons]| PlasticLinear::<F>::from_weight(random(1, [neurons, inputs])));
    let error = TemporalHierarchy::new(layers.to_vec(), &[1, 2], Aggregate::Last).unwrap_err();
    assert_eq!(error, PlasticityError::Chain { layer: 2, expected: 4, actual: 5 });
    let five = PlasticLinear::<F>::from_weight(random(1, [3, 5]));
    let error = TemporalHierarchy::new(vec![five.clone()], &[2], Aggregate::Concat).unwrap_err();
    assert_eq!(error, PlasticityError::Window { period: 2, actual: 5 });
    assert!(TemporalHierarchy::new(vec![five], &[5], Aggregate::Concat).is_ok());
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let hierarchy = drawn::<F>(&config(Aggregate::Mean));
    let start = || hierarchy.start(Subspace, Rate::Fixed(0.1));
    let error = start().run(random(1, [1, 4, 2])).unwrap_err();
    assert_eq!(error, PlasticityError::Inputs { expected: 3, actual: 2 });
    assert_eq!(start().run(random(1, [1, 0, 3])).unwrap_err(), PlasticityError::NoSteps);
    assert_eq!(hierarchy.forward(random(1, [1, 0, 3])).unwrap_err(), PlasticityError::NoSteps);
    assert_eq!(start().run(random(1, [0, 4, 3])).unwrap_err(), PlasticityError::NoSequences);
    assert_eq!(start().step(random(1, [0, 3])).unwrap_err(), PlasticityError::NoSequences);
    let error = hierarchy.forward(random(1, [0, 4, 3])).unwrap_err();
    assert_eq!(error, PlasticityError::NoSequences);
    let begun = start().step(random(1, [2, 3])).unwrap();
    let error = begun.step(random(1, [3, 3])).unwrap_err();
    assert_eq!(error, PlasticityError::Sequences { expected: 2, actual: 3 });
}
