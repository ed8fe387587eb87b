//! Reptile: where its inner loop goes, computed by hand, and tests of one query at a time.

use burn::backend::{Autodiff, Flex};
use burn::module::Module;
use burn::optim::Optimizer;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};
use fewshot::adapt::{AdaptError, InnerRule, Mask, adapt};
use fewshot::episode::{EpisodeBatch, Examples, Regression, RegressionBatch};
use fewshot::learners::{QueryNorm, cross_entropy};
use fewshot::models::{Conv4, Mlp};
use fewshot::precision::LossScale;
use fewshot::prelude::*;

use crate::golden::Golden;
use crate::laws::{WAYS, encoder, outcome_on, read};
use crate::named::{Values, assert_close, parameters, with_values};

type B = Autodiff<Flex>;
type Line = Maml<B, Mlp<B>>;

const WEIGHT: &str = "network.layers.0.weight";
const BIAS: &str = "network.layers.0.bias";

/// One layer, so that a gradient is written down easily.
fn linear(inputs: usize) -> Mlp<B> {
    MlpConfig::new(inputs).with_layers(vec![1]).init(&Default::default())
}

fn with(learner: Line, weight: &[f64], bias: f64) -> Line {
    let values = [(WEIGHT, weight.to_vec()), (BIAS, vec![bias])];
    let values = values.map(|(name, values)| (name.to_owned(), values));
    with_values::<B, _>(learner, &Values::from(values), DType::F64)
}

/// Each task's examples, `(x, y)`.
fn examples<const N: usize>(tasks: &[[([f64; N], f64); 2]]) -> Examples<B> {
    let of = |values: Vec<f64>, shape: &[usize]| TensorData::new(values, shape.to_vec());
    let all = || tasks.iter().flatten();
    let inputs = of(all().flat_map(|(x, _)| *x).collect(), &[tasks.len(), 2, N, 1, 1]);
    let targets = of(all().map(|(_, y)| *y).collect(), &[tasks.len(), 2, 1]);
    let place = (&Default::default(), DType::F64);
    Examples {
        inputs: Tensor::from_data(inputs, place),
        targets: Tensor::from_data(targets, place),
    }
}

type Points = [([f64; 1], f64); 2];

const SUPPORT: [Points; 2] = [[([1.0], 2.0), ([-0.5], 0.25)], [([0.75], -1.0), ([2.0], 1.5)]];
const QUERIES: [Points; 2] = [[([0.25], 1.0), ([-1.5], -0.5)], [([-1.0], 0.5), ([0.5], 0.75)]];
const START: [f64; 2] = [0.5, -0.25];
const RATE: f64 = 0.1;

fn batch() -> RegressionBatch<B> {
    RegressionBatch { support: examples(&SUPPORT), queries: examples(&QUERIES) }
}

/// Weight and bias after two steps on the mean squared error of `points`.
fn two_steps(points: &[([f64; 1], f64)]) -> [f64; 2] {
    (0..2).fold(START, |[weight, bias], _| {
        let slope = |of: fn(f64) -> f64| {
            let each = points.iter().map(|([x], y)| 2.0 * (weight * x + bias - y) * of(*x));
            each.sum::<f64>() / points.len() as f64
        };
        [weight - RATE * slope(|x| x), bias - RATE * slope(|_| 1.0)]
    })
}

/// The fast weights of both tasks, learned from all of their examples.
fn fast_weights() -> [[f64; 2]; 2] {
    [0, 1].map(|task| two_steps(&[SUPPORT[task], QUERIES[task]].concat()))
}

fn mean_of_fast_weights() -> [f64; 2] {
    let [one, two] = fast_weights();
    [0, 1].map(|index| (one[index] + two[index]) / 2.0)
}

fn line() -> Line {
    let learner = Maml::reptile(linear(1), InnerLoop::new(2, RATE), 4).unwrap();
    with(learner, &START[..1], START[1])
}

fn named([weight, bias]: [f64; 2]) -> Values {
    Values::from([(WEIGHT.to_owned(), vec![weight]), (BIAS.to_owned(), vec![bias])])
}

#[test]
fn the_gradient_is_the_way_back_from_the_mean_of_the_fast_weights() {
    let mean = mean_of_fast_weights();
    let expected = named([START[0] - mean[0], START[1] - mean[1]]);
    let losses = fast_weights().into_iter().zip(QUERIES).map(|([weight, bias], points)| {
        points.iter().map(|([x], y)| (weight * x + bias - y).powi(2)).sum::<f64>() / 2.0
    });
    let expected_loss = losses.sum::<f64>() / 2.0;
    for lanes in [1, 2] {
        let (loss, found) = outcome_on::<B, Regression, _>(&line().with_lanes(lanes), &batch());
        assert_close("the way", &found, &expected, 1e-12);
        assert!((loss - expected_loss).abs() < 1e-12, "{loss} is not {expected_loss}");
    }
    // Neither part of the examples alone leads there.
    for part in [SUPPORT, QUERIES] {
        let ends = part.map(|points| two_steps(&points));
        assert!(((ends[0][0] + ends[1][0]) / 2.0 - mean[0]).abs() > 1e-2);
    }
}

#[test]
fn mini_batches_are_other_ones_at_every_step_and_the_same_in_every_lane() {
    let mut learner =
        with(Maml::reptile(linear(1), InnerLoop::new(3, RATE), 1).unwrap(), &START[..1], START[1]);
    let mut ways = Vec::new();
    for step in 0..4 {
        MetaLearner::<B, Regression>::at_step(&mut learner, step);
        let (_, one_by_one) =
            outcome_on::<B, Regression, _>(&learner.clone().with_lanes(1), &batch());
        let (_, side_by_side) = outcome_on::<B, Regression, _>(&learner, &batch());
        assert_close("the way", &side_by_side, &one_by_one, 1e-12);
        ways.push(one_by_one[WEIGHT].clone());
    }
    assert!(ways.windows(2).any(|pair| (pair[0][0] - pair[1][0]).abs() > 1e-3), "{ways:?}");
}

#[test]
fn plain_descent_at_rate_one_lands_on_the_mean_of_the_fast_weights() {
    let learner = line();
    let found = learner.meta_gradients(&batch(), LossScale::ONE).gradients;
    let moved = Sgd::new().init::<B, Line>().step(1.0, learner, found.into_parts().0);
    assert_close("the mean", &parameters::<B, _>(&moved), &named(mean_of_fast_weights()), 1e-12);
}

const TARGETS: [f64; 4] = [1.0, -2.0, 0.5, 3.0];
const WEIGHTS: [f64; 4] = [0.25, 0.5, -1.0, 0.75];

/// Two examples of support and two queries, with an input of its own for each.
fn apart() -> RegressionBatch<B> {
    let one = |place: usize| -> [f64; 4] {
        std::array::from_fn(|index| if index == place { 1.0 } else { 0.0 })
    };
    let pair = |[first, second]: [usize; 2]| {
        examples(&[[(one(first), TARGETS[first]), (one(second), TARGETS[second])]])
    };
    RegressionBatch { support: pair([0, 1]), queries: pair([2, 3]) }
}

/// The weights alone move, so no example has a part in the weight of another.
fn axes(steps: usize, batch: usize) -> Line {
    let inner = InnerLoop::new(steps, RATE).with_mask(Mask::Only(vec!["layers.0.weight".into()]));
    with(Maml::reptile(linear(4), inner, batch).unwrap(), &WEIGHTS, 0.125)
}

/// The weight after each of so many steps took it along `share` of the slope of its own example.
fn after(steps: i32, share: f64, index: usize) -> f64 {
    let end = TARGETS[index] - 0.125;
    end + (WEIGHTS[index] - end) * (1.0 - 2.0 * RATE * share).powi(steps)
}

#[test]
fn mini_batches_take_every_example_once_a_round() {
    for (what, steps, batch, each, share) in [
        ("one by one", 4, 1, 1, 1.0),
        ("in pairs", 2, 2, 1, 0.5),
        ("two rounds", 8, 1, 2, 1.0),
        ("all at once", 4, 4, 4, 0.25),
    ] {
        let (_, found) = outcome_on::<B, Regression, _>(&axes(steps, batch), &apart());
        let ways = (0..4).map(|index| WEIGHTS[index] - after(each, share, index)).collect();
        assert_close(what, &found, &Values::from([(WEIGHT.to_owned(), ways)]), 1e-12);
    }
}

#[test]
fn a_test_takes_its_own_steps_and_examples_from_the_support_alone() {
    let batch = apart();
    let inputs = Tensor::cat(vec![batch.support.inputs.clone(), batch.queries.inputs], 1);
    let predict = |learner: &Line| {
        let outputs = learner.adapt(&batch.support).predict(inputs.clone()).into_data();
        outputs.iter::<f64>().collect::<Vec<_>>()
    };
    let learner = axes(4, 1);
    for (what, learner, each, share) in [
        // Four steps on two examples are two rounds.
        ("as in training", learner.clone(), 2, 1.0),
        ("two steps", learner.clone().with_test_steps(2), 1, 1.0),
        ("both at once", learner.clone().with_test_batch(2), 4, 0.5),
        ("no step", learner.clone().with_test_steps(0), 0, 1.0),
    ] {
        for (index, found) in predict(&learner).into_iter().enumerate() {
            let steps = if index < 2 { each } else { 0 };
            let expected = after(steps, share, index) + 0.125;
            assert!((found - expected).abs() < 1e-12, "{what}: {index} is {found}, not {expected}");
        }
    }
    // Training is as it was.
    let outcome = |learner: &Line| outcome_on::<B, Regression, _>(learner, &apart());
    assert_eq!(outcome(&learner), outcome(&learner.clone().with_test_steps(9).with_test_batch(2)));
}

#[test]
fn a_mini_batch_has_an_example() {
    let error = Maml::reptile(linear(1), InnerLoop::new(2, RATE), 0).unwrap_err();
    assert!(matches!(error, AdaptError::Setting { name: "mini-batch", .. }), "{error}");
    let panic = std::panic::catch_unwind(|| line().with_test_batch(0)).unwrap_err();
    let text = panic.downcast_ref::<&str>().expect("a text");
    assert_eq!(*text, "a mini-batch has at least one example");
}

#[test]
fn adam_without_momentum_is_for_first_order() {
    let inner = InnerLoop::new(2, 0.01).with_rule(InnerRule::reptile());
    let error = Maml::new(linear(1), inner.clone()).unwrap_err();
    let AdaptError::Setting { name, value, .. } = error else { panic!("{error}") };
    assert_eq!((name, value), ("epsilon_root", 0.0));
    assert!(Maml::first_order(linear(1), inner.clone()).is_ok());
    // Reptile takes no other order. The first step of every number is as long as the rate.
    let learner = Maml::reptile(linear(1), inner.with_steps(1), 4).unwrap();
    let learner = with(learner, &START[..1], START[1]);
    let (_, found) = outcome_on::<B, Regression, _>(&learner, &batch());
    for value in found.values().flatten() {
        let steps = [0.01, 0.0, -0.01];
        assert!(steps.iter().any(|step| (value - step).abs() < 1e-7), "{found:?}");
    }
}

const BETA: f64 = 0.9;
const LENGTH: f64 = 0.05;

/// The parameters after two steps of Adam without momentum that has made `time` steps already, and its
/// second moments then.
fn adam(points: &[([f64; 1], f64)], mut squares: [f64; 2], time: i32) -> [[f64; 2]; 2] {
    let mut values = START;
    for step in 1..=2 {
        let gradient = [|x: f64| x, |_| 1.0].map(|of: fn(f64) -> f64| {
            let slope = |([x], y): &([f64; 1], f64)| 2.0 * (values[0] * x + values[1] - y) * of(*x);
            points.iter().map(slope).sum::<f64>() / points.len() as f64
        });
        for index in 0..2 {
            squares[index] = BETA * squares[index] + (1.0 - BETA) * gradient[index].powi(2);
            let corrected = squares[index] / (1.0 - BETA.powi(time + step));
            values[index] -= LENGTH * gradient[index] / (corrected.sqrt() + 1e-8);
        }
    }
    [values, squares]
}

#[test]
fn second_moments_go_on_from_batch_to_batch_and_into_the_test() {
    let rule = InnerRule::Adam { beta_1: 0.0, beta_2: BETA, epsilon: 1e-8, epsilon_root: 0.0 };
    let inner = InnerLoop::new(2, LENGTH).with_rule(rule);
    let learner = || {
        let learner = Maml::reptile(linear(1), inner.clone(), 4).unwrap();
        with(learner, &START[..1], START[1])
    };
    assert_eq!(learner().settings()["second_moments_last"], true);
    let network = Encoder::<B>::architecture(learner().network());
    assert_eq!(learner().architecture(), format!("reptile({network})"));
    for lanes in [1, 2] {
        let learner = learner().with_lanes(lanes);
        let mut squares = [0.0; 2];
        for round in 0..3 {
            let ends = [0, 1]
                .map(|task| adam(&[SUPPORT[task], QUERIES[task]].concat(), squares, 2 * round));
            let mean = |part: usize| {
                [0, 1].map(|index| (ends[0][part][index] + ends[1][part][index]) / 2.0)
            };
            let (_, found) = outcome_on::<B, Regression, _>(&learner, &batch());
            let ways = named([START[0] - mean(0)[0], START[1] - mean(0)[1]]);
            assert_close(&format!("round {round}"), &found, &ways, 1e-6);
            squares = mean(1);
        }
    }
    // What was saved is tested as what was trained, and not as a learner that begins.
    let trained = learner();
    for _ in 0..3 {
        outcome_on::<B, Regression, _>(&trained, &batch());
    }
    let loaded = learner().load_record(trained.clone().into_record());
    let predict = |learner: &Line| {
        let outputs = learner.adapt(&batch().support).predict(batch().queries.inputs);
        outputs.into_data().iter::<f64>().collect::<Vec<_>>()
    };
    assert_eq!(predict(&loaded), predict(&trained));
    let fresh = predict(&learner());
    assert!(predict(&trained).iter().zip(&fresh).any(|(one, two)| (one - two).abs() > 1e-3));
}

type Net = Classifier<B, Conv4<B>>;

fn images() -> (Net, EpisodeBatch<B>) {
    let network = &Golden::read().networks["conv_pool"];
    let (encoder, features) = encoder::<B>("conv_pool");
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let classifier = with_values::<B, _>(classifier, &network.parameters(""), DType::F32);
    (classifier, network.batch(WAYS, DType::F32))
}

fn reptile(norm: QueryNorm) -> Maml<B, Net> {
    let learner = Maml::reptile(images().0, InnerLoop::new(2, 0.3), 6).unwrap();
    learner.with_query_norm(norm)
}

fn farthest<A: Backend>(one: Tensor<A, 3>, two: Tensor<A, 3>) -> f32 {
    (one - two).abs().max().into_data().iter::<f32>().next().unwrap()
}

#[test]
fn a_query_alone_is_predicted_without_the_others() {
    let (_, batch) = images();
    let [_, queries, ..] = batch.queries.dims();
    let first = batch.queries.clone().narrow(1, 0, 1);
    let others = batch.queries.clone().narrow(1, 1, queries - 1) * 3.0 + 1.0;
    let changed = Tensor::cat(vec![first, others], 1);
    let moved = |norm| {
        let adapted = reptile(norm).adapt(&batch.support);
        let of = |queries| adapted.predict(queries).narrow(1, 0, 1);
        farthest(of(batch.queries.clone()), of(changed.clone()))
    };
    let (alone, together) = (moved(QueryNorm::Alone), moved(QueryNorm::Together));
    assert!(alone < 1e-5, "moved by {alone}");
    assert!(together > 1e-1, "moved by {together} alone");
}

#[test]
fn a_query_alone_is_normalised_with_the_support() {
    let (classifier, batch) = images();
    let found = reptile(QueryNorm::Alone).adapt(&batch.support).predict(batch.queries.clone());
    for task in 0..2 {
        let support = batch.support.images.clone().narrow(0, task, 1).flatten::<4>(0, 1);
        let labels = batch.support.labels.clone().narrow(0, task, 1);
        let raised = Tensor::<Autodiff<B>, 4>::from_inner(support.clone());
        let labels = Tensor::<Autodiff<B>, 2, Int>::from_inner(labels);
        let loss = |net: &Classifier<Autodiff<B>, Conv4<Autodiff<B>>>| {
            let logits = net.forward(raised.clone(), BnStatistics::Batch);
            cross_entropy(logits.unsqueeze(), labels.clone())
        };
        let net = adapt(&classifier, loss, &InnerLoop::new(2, 0.3)).unwrap();
        for query in 0..batch.queries.dims()[1] {
            let image = batch.queries.clone().narrow(0, task, 1).narrow(1, query, 1);
            let inputs = Tensor::cat(vec![support.clone(), image.flatten(0, 1)], 0);
            let last = net.forward(inputs, BnStatistics::Batch).narrow(0, 6, 1);
            let own = found.clone().narrow(0, task, 1).narrow(1, query, 1);
            let (found, expected) = (read(own), read(last));
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 2e-4, "{found} is not {expected}");
            }
        }
    }
    // A test of whole batches normalises likewise.
    let outputs = reptile(QueryNorm::Alone).outputs(&batch, BnStatistics::Batch);
    assert!(farthest(outputs, found) < 1e-6);
}
