//! Rules on an autodiff backend.

use burn::backend::{Autodiff, Flex};
use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{random, read, tensor};
use crate::optim::Adam;
use crate::plasticity::{
    Aggregate, Bcm, Coefficients, Covariance, Hebb, LearnedRate, Oja, PlasticLinear,
    PlasticityRule, Rate, Running, Sanger, Subspace, TemporalHierarchy,
};

type A = Autodiff<Flex>;

const CHANGES: usize = 20;

/// Number that a weight gives after the changes of `CHANGES` batches.
fn outcome<B: Backend, R: PlasticityRule<B>>(
    rule: &R,
    rate: Rate<B>,
    start: Tensor<B, 2>,
) -> Tensor<B, 1> {
    let [neurons, inputs] = start.dims();
    let mut state = rule.init(neurons, inputs, &start.device());
    let mut weight = start;
    for batch in 0..CHANGES as u64 {
        let x = random::<B, 2>(100 + batch, [4, inputs]);
        let y = x.clone().matmul(weight.clone().transpose());
        let (change, next) = rule.change(&weight, x, y, state);
        weight = change.apply(weight, &rate);
        state = next;
    }
    let aim = random::<B, 2>(7, [neurons, inputs]);
    ((weight - aim).powi_scalar(2)).sum()
}

fn start<B: Backend>() -> Tensor<B, 2> {
    random::<B, 2>(5, [2, 3]) * 0.5
}

fn number(value: Tensor<Flex, 1>) -> f64 {
    f64::from(read(value)[0])
}

/// Rounding of a difference in f32.
const NOISE: f64 = 1e-4;

/// Compares a gradient with a difference so large that a gradient of zero does not pass.
fn close(name: &str, gradient: f64, difference: f64) {
    assert!(difference.abs() > 2.0 * NOISE, "{name}: a difference of {difference} tells nothing");
    let error = (gradient - difference).abs();
    let tolerance = 1e-2 * difference.abs() + NOISE;
    assert!(error < tolerance, "{name}: {gradient}, differences say {difference}");
}

/// The derivative with respect to the rate through many changes, beside a central difference.
fn check<R: PlasticityRule<A> + PlasticityRule<Flex>>(name: &str, rule: R) {
    const RATE: f64 = 0.02;
    const STEP: f64 = 5e-4;
    let rate = tensor::<A, 1>(&[RATE as f32], [1]).require_grad();
    let first = start::<A>().require_grad();
    let gradients = outcome::<A, R>(&rule, Rate::Learned(rate.clone()), first.clone()).backward();
    let actual = number(rate.grad(&gradients).unwrap());
    let at = |rate| number(outcome::<Flex, R>(&rule, Rate::Fixed(rate), start()));
    close(name, actual, (at(RATE + STEP) - at(RATE - STEP)) / (2.0 * STEP));
    let actual = read(first.grad(&gradients).unwrap());
    for (index, actual) in actual.into_iter().enumerate() {
        let at = |step: f32| {
            let mut moved = read(start::<Flex>());
            moved[index] += step;
            number(outcome::<Flex, R>(&rule, Rate::Fixed(RATE), tensor(&moved, [2, 3])))
        };
        let difference = (at(5e-3) - at(-5e-3)) / 1e-2;
        close(&format!("{name}, weight {index}"), f64::from(actual), difference);
    }
}

#[test]
fn gradients_of_rate_and_first_weight_agree_with_differences_over_many_changes() {
    check("hebb", Hebb::new().with_decay(0.1).unwrap());
    check("covariance", Covariance::new(5.0).unwrap());
    check("oja", Oja);
    check("subspace", Subspace);
    check("sanger", Sanger);
    check("bcm", Bcm::new(10.0).unwrap());
}

#[test]
fn gradients_of_a_rules_coefficients_agree_with_differences() {
    const VALUES: [f64; 4] = [0.5, -0.3, -0.8, 0.2];
    let rule = Coefficients::<A>::new(VALUES, &Default::default()).unwrap();
    let gradients = outcome::<A, _>(&rule, Rate::Fixed(0.02), start()).backward();
    let actual = read(rule.values.grad(&gradients).unwrap());
    for (index, actual) in actual.into_iter().enumerate() {
        let at = |step: f64| {
            let mut values = VALUES;
            values[index] += step;
            let rule = Coefficients::<Flex>::new(values, &Default::default()).unwrap();
            number(outcome::<Flex, _>(&rule, Rate::Fixed(0.02), start()))
        };
        close(&format!("coefficient {index}"), f64::from(actual), (at(5e-3) - at(-5e-3)) / 1e-2);
    }
    assert_eq!(read(rule.valid().values.val()), VALUES.map(|value| value as f32));
}

/// Two layers of periods 1 and 2, of 3 inputs, 3 and 2 neurons, with rates relative to the inputs.
fn running<B: Backend, R: PlasticityRule<B>>(
    rule: R,
    rate: Rate<B>,
    weight: Tensor<B, 2>,
) -> Running<B, R> {
    let above = PlasticLinear::from_weight(start());
    let layers = vec![PlasticLinear::from_weight(weight), above];
    let hierarchy = TemporalHierarchy::new(layers, &[1, 2], Aggregate::Mean).unwrap();
    hierarchy.start(rule, rate).with_relative_rates(3.0).unwrap()
}

/// Number that both layers give after sequences.
fn distance<B: Backend, R: PlasticityRule<B>>(running: &Running<B, R>) -> Tensor<B, 1> {
    let layers = running.hierarchy().layers().iter().enumerate().map(|(layer, now)| {
        let aim = random::<B, 2>(8 + layer as u64, now.weight.dims());
        (now.weight.val() - aim).powi_scalar(2).sum()
    });
    layers.reduce(|sum, distance| sum + distance).unwrap()
}

fn sequences<B: Backend>() -> Tensor<B, 3> {
    random(21, [2, 12, 3])
}

fn base<B: Backend>() -> Tensor<B, 2> {
    random::<B, 2>(6, [3, 3]) * 0.5
}

/// Derivatives with respect to rate and first weight through a hierarchy that learns.
fn check_running<R: PlasticityRule<A> + PlasticityRule<Flex>>(name: &str, rule: &R) {
    const RATE: f64 = 0.1;
    let rate = tensor::<A, 1>(&[RATE as f32], [1]).require_grad();
    let first = base::<A>().require_grad();
    let begun = running::<A, R>(rule.clone(), Rate::Learned(rate.clone()), first.clone());
    let gradients = distance(&begun.learn(sequences()).unwrap()).backward();
    let outcome = |rate, weight| {
        let begun = running::<Flex, R>(rule.clone(), Rate::Fixed(rate), weight);
        number(distance(&begun.learn(sequences()).unwrap()))
    };
    let actual = number(rate.grad(&gradients).unwrap());
    let difference = (outcome(RATE + 2e-3, base()) - outcome(RATE - 2e-3, base())) / 4e-3;
    close(&format!("{name}, rate"), actual, difference);
    for (index, actual) in read(first.grad(&gradients).unwrap()).into_iter().enumerate() {
        let at = |step: f32| {
            let mut moved = read(base::<Flex>());
            moved[index] += step;
            outcome(RATE, tensor(&moved, [3, 3]))
        };
        let difference = (at(5e-3) - at(-5e-3)) / 1e-2;
        close(&format!("{name}, weight {index}"), f64::from(actual), difference);
    }
}

#[test]
fn gradients_through_a_hierarchy_with_relative_rates_agree_with_differences() {
    check_running("hebb", &Hebb::new().with_decay(0.3).unwrap());
    check_running("oja", &Oja);
    check_running("subspace", &Subspace);
    check_running("sanger", &Sanger);
    check_running("bcm", &Bcm::new(10.0).unwrap());
}

#[test]
fn a_gradient_stops_where_the_graph_is_cut() {
    let gradient = |cut: bool| {
        let first = base::<A>().require_grad();
        let rule = Covariance::new(5.0).unwrap();
        let begun = running::<A, _>(rule, Rate::Fixed(0.1), first.clone());
        let rate = tensor::<A, 1>(&[0.1], [1]).require_grad();
        let learned = begun.learn(sequences()).unwrap().with_rate(Rate::Learned(rate.clone()));
        let learned = if cut { learned.detach() } else { learned };
        let learned = learned.learn(sequences()).unwrap();
        let loss = distance(&learned);
        let value = number(loss.clone().inner());
        let gradients = loss.backward();
        (value, first.grad(&gradients), number(rate.grad(&gradients).unwrap()))
    };
    let (whole, through, _) = gradient(false);
    let (cut, stopped, rate) = gradient(true);
    assert_eq!(whole, cut);
    assert!(read(through.unwrap()).iter().any(|value| value.abs() > 1e-3));
    assert!(stopped.is_none(), "a gradient went through the cut");
    assert!(rate.abs() > 1e-3, "what follows the cut is learned: {rate}");
}

#[test]
fn an_optimizer_moves_a_learned_rate_to_where_learning_gets_further() {
    let mut rate = LearnedRate::<A>::new(0.01, &Default::default()).unwrap();
    let mut optimizer = Adam::new().init();
    let mut losses = Vec::new();
    for _ in 0..5 {
        let along = |tick: f32| tensor::<A, 2>(&[1.0 + tick, 0.0, 0.0], [1, 3]);
        let mut layer = PlasticLinear::from_weight(tensor(&[0.5, 0.5, 0.5], [1, 3]));
        for tick in 0..5 {
            (layer, _) = layer.adapt(along(tick as f32 * 0.1), &Oja, [None, None], &rate.rate());
        }
        let aim = tensor::<A, 2>(&[1.0, 0.0, 0.0], [1, 3]);
        let loss = (layer.weight.val() - aim).powi_scalar(2).sum();
        losses.push(number(loss.clone().inner()));
        let gradients = GradientsParams::from_grads(loss.backward(), &rate);
        rate = optimizer.step(0.1, rate, gradients);
    }
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
    assert!((rate.rate().value() - 0.01 * 0.5f64.exp()).abs() < 5e-4, "{:?}", rate.rate().value());
}
