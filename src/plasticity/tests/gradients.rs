//! Rules on an autodiff backend.

use burn::backend::{Autodiff, Flex};
use burn::module::AutodiffModule;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{random, read, tensor};
use crate::plasticity::{
    Bcm, Coefficients, Covariance, Hebb, Oja, PlasticityRule, Rate, Sanger, Subspace,
};

type A = Autodiff<Flex>;

const CHANGES: usize = 20;

/// What `CHANGES` batches make of a weight, as one number.
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

fn close(what: &str, found: f64, expected: f64) {
    let error = (found - expected).abs() / expected.abs().max(0.1);
    assert!(error < 1e-2, "{what}: {found}, differences say {expected}");
}

/// The derivative with respect to the rate through many changes, beside a central difference.
fn check<R: PlasticityRule<A> + PlasticityRule<Flex>>(name: &str, rule: R) {
    const RATE: f64 = 0.02;
    const STEP: f64 = 5e-4;
    let rate = tensor::<A, 1>(&[RATE as f32], [1]).require_grad();
    let first = start::<A>().require_grad();
    let gradients = outcome::<A, R>(&rule, Rate::Learned(rate.clone()), first.clone()).backward();
    let found = number(rate.grad(&gradients).unwrap());
    let at = |rate| number(outcome::<Flex, R>(&rule, Rate::Fixed(rate), start()));
    close(name, found, (at(RATE + STEP) - at(RATE - STEP)) / (2.0 * STEP));
    let found = read(first.grad(&gradients).unwrap());
    for (index, found) in found.into_iter().enumerate() {
        let at = |step: f32| {
            let mut moved = read(start::<Flex>());
            moved[index] += step;
            number(outcome::<Flex, R>(&rule, Rate::Fixed(RATE), tensor(&moved, [2, 3])))
        };
        let difference = (at(5e-3) - at(-5e-3)) / 1e-2;
        close(&format!("{name}, weight {index}"), f64::from(found), difference);
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
    let rule = Coefficients::<A>::new(VALUES, &Default::default());
    let gradients = outcome::<A, _>(&rule, Rate::Fixed(0.02), start()).backward();
    let found = read(rule.values.grad(&gradients).unwrap());
    for (index, found) in found.into_iter().enumerate() {
        let at = |step: f64| {
            let mut values = VALUES;
            values[index] += step;
            let rule = Coefficients::<Flex>::new(values, &Default::default());
            number(outcome::<Flex, _>(&rule, Rate::Fixed(0.02), start()))
        };
        close(&format!("coefficient {index}"), f64::from(found), (at(5e-3) - at(-5e-3)) / 1e-2);
    }
    assert_eq!(read(rule.valid().values.val()), VALUES.map(|value| value as f32));
}
