use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;

use super::{
    assert_close, noise, on_accelerators, on_backend, on_every_backend, random, read, tensor,
};
use crate::plasticity::{
    Bcm, BcmForm, Coefficients, Covariance, Hebb, Oja, PlasticityRule, Rate, RuleState, Sanger,
    Subspace,
};

on_every_backend! {
    one_change_has_the_values_worked_out_by_hand
    a_change_in_place_is_the_weight_and_its_delta
    a_batch_changes_by_the_mean_of_its_examples
    centred_inputs_teach_as_well
    bcm_becomes_selective_for_one_of_two_patterns
    the_covariance_rule_ignores_a_constant
    a_neuron_that_was_silent_learns_on_by_the_law_of_bcm
}

fn weight<B: Backend>() -> Tensor<B, 2> {
    tensor(&[0.5, -0.25], [1, 2])
}

/// One change by `rule` of a linear layer.
pub(super) fn step<B: Backend, R: PlasticityRule<B>>(
    rule: &R,
    weight: Tensor<B, 2>,
    x: Tensor<B, 2>,
    state: RuleState<B>,
    rate: f64,
) -> (Tensor<B, 2>, RuleState<B>) {
    let y = product(x.clone(), weight.clone().transpose());
    let (change, state) = rule.change(&weight, x, y, state);
    (change.apply(weight, &Rate::Fixed(rate)), state)
}

fn threshold_of<B: Backend>([_, threshold]: RuleState<B>) -> Vec<f32> {
    read(threshold.unwrap())
}

pub(super) fn first<B: Backend, R: PlasticityRule<B>>(
    rule: &R,
    weight: &Tensor<B, 2>,
) -> RuleState<B> {
    let [neurons, inputs] = weight.dims();
    rule.init(neurons, inputs, &weight.device())
}

fn one_change_has_the_values_worked_out_by_hand<B: Backend>() {
    let x = || tensor::<B, 2>(&[2.0, 1.0], [1, 2]);
    let after = |rule: &dyn Fn() -> Tensor<B, 2>| read(rule());
    let hebb = after(&|| step(&Hebb::new(), weight(), x(), [None, None], 0.1).0);
    assert_close("hebb", &hebb, &[0.65, -0.175], 1e-6);
    let decaying = Hebb::new().with_decay(0.5).unwrap();
    let decayed = after(&|| step(&decaying, weight(), x(), [None, None], 0.1).0);
    assert_close("hebb with decay", &decayed, &[0.625, -0.1625], 1e-6);
    let expected = [0.621875, -0.1609375];
    assert_close(
        "oja",
        &after(&|| step(&Oja, weight(), x(), [None, None], 0.1).0),
        &expected,
        1e-6,
    );
    // Of one neuron, all three are one rule.
    assert_close(
        "subspace",
        &after(&|| step(&Subspace, weight(), x(), [None, None], 0.1).0),
        &expected,
        1e-6,
    );
    assert_close(
        "sanger",
        &after(&|| step(&Sanger, weight(), x(), [None, None], 0.1).0),
        &expected,
        1e-6,
    );
    let bcm = Bcm::new(10.0).unwrap().with_threshold(0.5).unwrap();
    let (changed, threshold) = step(&bcm, weight(), x(), first(&bcm, &weight::<B>()), 0.1);
    assert_close("bcm", &read(changed), &[0.5375, -0.23125], 1e-6);
    assert_close("threshold", &threshold_of(threshold), &[0.50625], 1e-6);
    let law = bcm.with_form(BcmForm::Law);
    let (changed, _) = step(&law, weight(), x(), first(&law, &weight::<B>()), 0.1);
    assert_close("law", &read(changed), &[0.575, -0.2125], 1e-6);
    let general = Coefficients::new([1.0, 2.0, 3.0, 4.0], &Default::default()).unwrap();
    let changed = after(&|| step(&general, weight(), x(), [None, None], 0.1).0);
    // y = 0.75: 0.1 * (0.75 x + 2 x + 2.25 + 4)
    assert_close("coefficients", &changed, &[0.5 + 1.175, -0.25 + 0.9], 1e-5);
}

/// Of several neurons, the rules of Oja written out example by example on the host.
fn by_hand(rule: &str, weight: &[f32], xs: &[f32], [neurons, inputs]: [usize; 2]) -> Vec<f32> {
    let examples = xs.chunks(inputs);
    let count = examples.len() as f32;
    let mut delta = vec![0.0; neurons * inputs];
    for x in examples {
        let row = |i: usize| &weight[i * inputs..(i + 1) * inputs];
        let y: Vec<f32> =
            (0..neurons).map(|i| row(i).iter().zip(x).map(|(w, x)| w * x).sum()).collect();
        for i in 0..neurons {
            for j in 0..inputs {
                let seen: f32 = match rule {
                    "hebb" => 0.0,
                    "oja" => y[i] * row(i)[j],
                    "subspace" => (0..neurons).map(|k| y[k] * row(k)[j]).sum(),
                    "sanger" => (0..=i).map(|k| y[k] * row(k)[j]).sum(),
                    other => unreachable!("{other}"),
                };
                delta[i * inputs + j] += y[i] * (x[j] - seen) / count;
            }
        }
    }
    delta
}

fn a_change_in_place_is_the_weight_and_its_delta<B: Backend>() {
    fn check<B: Backend, R: PlasticityRule<B>>(name: &str, rule: R) {
        let (shape, rate) = ([3, 5], 0.3);
        let (w, x) = (noise(1, 15), noise(2, 20));
        let weight = tensor::<B, 2>(&w, shape);
        let inputs = tensor::<B, 2>(&x, [4, 5]);
        let y = product(inputs.clone(), weight.clone().transpose());
        let state = first(&rule, &weight);
        let (change, _) = rule.change(&weight, inputs.clone(), y, state.clone());
        let delta = change.delta(weight.clone());
        let expected = read(weight.clone() + delta.clone() * rate);
        let (changed, _) = step(&rule, weight, inputs, state, rate);
        assert_close(name, &read(changed), &expected, 1e-5);
        if ["hebb", "oja", "subspace", "sanger"].contains(&name) {
            assert_close(name, &read(delta), &by_hand(name, &w, &x, shape), 1e-4);
        }
    }
    check::<B, _>("hebb", Hebb::new());
    check::<B, _>("hebb with decay", Hebb::new().with_decay(0.2).unwrap());
    check::<B, _>("oja", Oja);
    check::<B, _>("subspace", Subspace);
    check::<B, _>("sanger", Sanger);
    check::<B, _>("bcm", Bcm::new(10.0).unwrap().with_decay(0.1).unwrap());
    check::<B, _>(
        "coefficients",
        Coefficients::new([1.0, 0.5, -0.5, 0.1], &Default::default()).unwrap(),
    );
}

fn a_batch_changes_by_the_mean_of_its_examples<B: Backend>() {
    fn check<B: Backend, R: PlasticityRule<B>>(name: &str, rule: R) {
        let weight = random::<B, 2>(3, [3, 4]);
        let x = random::<B, 2>(4, [5, 4]);
        let delta = |x: Tensor<B, 2>| {
            let y = product(x.clone(), weight.clone().transpose());
            rule.change(&weight, x, y, first(&rule, &weight)).0.delta(weight.clone())
        };
        let singles = (0..5).map(|example| delta(x.clone().narrow(0, example, 1)));
        let mean = singles.reduce(|sum, delta| sum + delta).unwrap() / 5.0;
        assert_close(name, &read(delta(x.clone())), &read(mean), 1e-5);
    }
    check::<B, _>("hebb", Hebb::new().with_decay(0.2).unwrap());
    check::<B, _>("oja", Oja);
    check::<B, _>("subspace", Subspace);
    check::<B, _>("sanger", Sanger);
    check::<B, _>("bcm", Bcm::new(10.0).unwrap());
    check::<B, _>(
        "coefficients",
        Coefficients::new([1.0, 0.5, -0.5, 0.1], &Default::default()).unwrap(),
    );
}

/// Pairs of opposite inputs: their mean is zero, and so is the outer product of means.
fn centred_inputs_teach_as_well<B: Backend>() {
    let x = tensor::<B, 2>(&[2.0, 1.0, -2.0, -1.0], [2, 2]);
    let (changed, _) = step(&Hebb::new(), weight(), x, [None, None], 0.1);
    assert_close("hebb", &read(changed), &[0.65, -0.175], 1e-6);
}

/// Two patterns in turns: the one output goes to 2, which is one over its probability, and the
/// other to 0.
fn bcm_becomes_selective_for_one_of_two_patterns<B: Backend>() {
    let patterns = [[1.0, 0.2], [0.2, 1.0]].map(|pattern| tensor::<B, 2>(&pattern, [1, 2]));
    let rule = Bcm::new(20.0).unwrap();
    let mut weight = tensor::<B, 2>(&[0.5, 0.4, 0.3, 0.6], [2, 2]);
    let mut state = first(&rule, &weight);
    for turn in 0..8000 {
        (weight, state) = step(&rule, weight, patterns[turn % 2].clone(), state, 0.005);
    }
    let respond =
        |pattern: &Tensor<B, 2>| read(product(pattern.clone(), weight.clone().transpose()));
    let (first, second) = (respond(&patterns[0]), respond(&patterns[1]));
    assert_close("to the first pattern", &first, &[2.0, 0.0], 0.15);
    assert_close("to the second pattern", &second, &[0.0, 2.0], 0.15);
}

fn the_covariance_rule_ignores_a_constant<B: Backend>() {
    let rule = Covariance::new(10.0).unwrap();
    let mut weight = weight::<B>();
    let mut state = first(&rule, &weight);
    for _ in 0..5 {
        let constant = tensor::<B, 2>(&[2.0, 1.0], [1, 2]);
        (weight, state) = step(&rule, weight, constant, state, 0.1);
    }
    assert_close("weight", &read(weight.clone()), &[0.5, -0.25], 1e-6);
    // Now x deviates by (1, 0) and y, of w = (0.5, -0.25), by 0.5.
    let (changed, state) = step(&rule, weight, tensor(&[3.0, 1.0], [1, 2]), state, 0.1);
    assert_close("weight", &read(changed.clone()), &[0.55, -0.25], 1e-6);
    // The means have moved by a tenth to (2.1, 1) and 0.8; y is 0.85 on the old input.
    let (changed, _) = step(&rule, changed, tensor(&[2.0, 1.0], [1, 2]), state, 1.0);
    assert_close("weight", &read(changed), &[0.55 - 0.1 * 0.05, -0.25], 1e-5);
}

/// With `tau = 1` the threshold is zero after one silent input.
fn a_neuron_that_was_silent_learns_on_by_the_law_of_bcm<B: Backend>() {
    let rule = Bcm::new(1.0).unwrap().with_form(BcmForm::Law);
    let mut weight = weight::<B>();
    let mut state = first(&rule, &weight);
    for _ in 0..3 {
        (weight, state) = step(&rule, weight, tensor(&[0.0, 0.0], [1, 2]), state, 0.1);
    }
    assert_close("threshold", &threshold_of(state.clone()), &[0.0], 1e-12);
    assert_close("silent", &read(weight.clone()), &[0.5, -0.25], 0.0);
    // y = 0.02, and y (y - 0) / 1e-3 = 0.4
    let (weight, _) = step(&rule, weight, tensor(&[0.04, 0.0], [1, 2]), state, 0.1);
    assert_close("weight", &read(weight), &[0.5 + 0.1 * 0.4 * 0.04, -0.25], 1e-6);
}
