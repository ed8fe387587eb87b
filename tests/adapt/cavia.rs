//! CAVIA: a context that is adapted alone, in a network that learns alone.

use burn::backend::{Autodiff, Flex};
use burn::optim::Optimizer;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use fewshot::adapt::AdaptError;
use fewshot::episode::{Classification, Regression, RegressionBatch, TaskKind};
use fewshot::learners::AdaptableNetwork;
use fewshot::models::{Conv4, Downsampling, Mlp, Readout};
use fewshot::precision::LossScale;
use fewshot::prelude::*;

use crate::curves;
use crate::golden::Golden;
use crate::laws::{WAYS, outcome_on, read};
use crate::named::{Values, assert_close, assert_slopes, parameters, with_values};

type B = Autodiff<Flex>;
type Net = Classifier<B, Conv4<B>>;

fn mlp() -> Mlp<B> {
    let device = Default::default();
    B::seed(&device, 5);
    MlpConfig::new(1).with_layers(vec![6, 5, 1]).with_context(3).init(&device)
}

fn conv4(context: usize) -> Net {
    let device = Default::default();
    B::seed(&device, 6);
    let config = Conv4Config::new([1, 8, 8]).with_channels(4).with_blocks(2).with_context(context);
    let config = config.with_downsampling(Downsampling::Stride).with_readout(Readout::Average);
    Classifier::new(config.init(&device), config.features(), WAYS, &device)
}

fn waves(dtype: DType) -> RegressionBatch<B> {
    curves::batch(&Golden::read().networks["mlp"], dtype)
}

fn images(dtype: DType) -> EpisodeBatch<B> {
    Golden::read().networks["conv_stride"].batch(WAYS, dtype)
}

/// Two steps that go far.
fn cavia<N: AdaptableNetwork<B>>(network: N, order: Order) -> Maml<B, N> {
    Maml::cavia(network, InnerLoop::new(2, 0.5).with_order(order)).unwrap()
}

/// Of all parameters but the context, which has no gradient.
fn assert_derivative<K: TaskKind, N: AdaptableNetwork<B>>(made: &Maml<B, N>, batch: &K::Batch<B>)
where
    Maml<B, N>: MetaLearner<B, K>,
{
    let values = parameters::<B, _>(made);
    let context = |name: &&String| name.ends_with("context");
    assert_eq!(values.keys().filter(context).count(), 1);
    let outcome = |values: &Values| {
        outcome_on::<B, K, _>(&with_values::<B, _>(made.clone(), values, DType::F64), batch)
    };
    let found = assert_slopes(&values, outcome);
    let rest: Vec<_> = values.keys().filter(|name| !context(name)).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), rest);
    let largest = found.values().flatten().fold(0.0f64, |most, value| most.max(value.abs()));
    assert!(largest > 1e-2, "no slope beyond the tolerance");
}

#[test]
fn gradients_of_an_mlp_are_central_differences_and_the_context_has_none() {
    assert_derivative::<Regression, _>(&cavia(mlp(), Order::Second), &waves(DType::F64));
}

#[test]
fn gradients_of_a_conv4_are_central_differences_and_the_context_has_none() {
    assert_derivative::<Classification, _>(&cavia(conv4(3), Order::Second), &images(DType::F64));
}

/// Distance of two gradients as a share of the second's length.
fn apart(one: &Values, two: &Values) -> f64 {
    let pairs = || one.values().flatten().zip(two.values().flatten());
    let distance: f64 = pairs().map(|(one, two)| (one - two).powi(2)).sum();
    let length: f64 = pairs().map(|(_, two)| two * two).sum();
    (distance / length).sqrt()
}

#[test]
fn first_order_has_the_loss_of_second_order_and_another_gradient() {
    let of = |order| outcome_on::<B, Regression, _>(&cavia(mlp(), order), &waves(DType::F32));
    let ((first_loss, first), (loss, second)) = (of(Order::First), of(Order::Second));
    assert!((first_loss - loss).abs() < 1e-6 * loss, "{first_loss} and {loss}");
    assert!(first.keys().eq(second.keys()));
    assert!(apart(&first, &second) > 1e-2, "{}", apart(&first, &second));

    let of =
        |order| outcome_on::<B, Classification, _>(&cavia(conv4(3), order), &images(DType::F32));
    let ((first_loss, first), (loss, second)) = (of(Order::First), of(Order::Second));
    assert!((first_loss - loss).abs() < 1e-5 * loss, "{first_loss} and {loss}");
    assert!(apart(&first, &second) > 1e-2, "{}", apart(&first, &second));
}

#[test]
fn contexts_side_by_side_are_contexts_one_by_one() {
    for order in [Order::First, Order::Second] {
        let of = |lanes| {
            let curves = cavia(mlp(), order).with_lanes(lanes);
            let classes = cavia(conv4(3), order).with_lanes(lanes);
            let (batch, episodes) = (waves(DType::F32), images(DType::F32));
            let curve = curves.adapt(&batch.support).predict(batch.queries.inputs.clone());
            let logits = classes.adapt(&episodes.support).predict(episodes.queries.clone());
            let outcomes = [
                outcome_on::<B, Regression, _>(&curves, &batch),
                outcome_on::<B, Classification, _>(&classes, &episodes),
            ];
            (outcomes, [read(curve), read(logits)].concat())
        };
        let ((one, outputs), (many, side_by_side)) = (of(1), of(2));
        for ((loss, expected), (found_loss, found)) in one.iter().zip(&many) {
            assert!((loss - found_loss).abs() < 1e-5 * loss, "{found_loss} is not {loss}");
            assert_close(&format!("{order:?}"), found, expected, 1e-4);
        }
        for (expected, found) in outputs.iter().zip(&side_by_side) {
            assert!((expected - found).abs() < 1e-4, "{found} is not {expected}");
        }
    }
}

/// How far two tasks, adapted to, are apart in what they make of the same queries.
fn contrast(outputs: Tensor<B, 3>) -> f32 {
    let of = |task| outputs.clone().narrow(0, task, 1);
    (of(0) - of(1)).abs().max().into_scalar()
}

fn twice<const D: usize>(queries: Tensor<B, D>) -> Tensor<B, D> {
    queries.narrow(0, 0, 1).repeat_dim(0, 2)
}

/// After enough training for a context to count.
fn trained<K: TaskKind, N: AdaptableNetwork<B>>(
    mut learner: Maml<B, N>,
    batch: &K::Batch<B>,
) -> Maml<B, N>
where
    Maml<B, N>: MetaLearner<B, K>,
{
    let before = parameters::<B, _>(&learner);
    let mut optimizer = AdamW::new().init::<B, Maml<B, N>>();
    for _ in 0..30 {
        let found = learner.meta_gradients(batch, LossScale::ONE).gradients;
        learner = optimizer.step(0.01, learner, found.into_parts().0);
    }
    let after = parameters::<B, _>(&learner);
    for (name, values) in &after {
        match name.ends_with("context") {
            true => assert!(values.iter().all(|value| *value == 0.0), "{name} is {values:?}"),
            false => assert_ne!(values, &before[name], "{name}"),
        }
    }
    learner
}

#[test]
fn the_context_of_a_trained_learner_is_zero_and_of_every_task_another() {
    let batch = waves(DType::F32);
    let learner = trained::<Regression, _>(cavia(mlp(), Order::Second), &batch);
    let predict = |learner: &Maml<B, Mlp<B>>| {
        let queries = twice(batch.queries.inputs.clone());
        contrast(learner.adapt(&batch.support).predict(queries))
    };
    assert!(predict(&learner) > 1e-2, "{}", predict(&learner));
    assert_eq!(predict(&learner.with_test_steps(0)), 0.0);

    let episodes = images(DType::F32);
    let learner = trained::<Classification, _>(cavia(conv4(3), Order::Second), &episodes);
    let predict = |learner: &Maml<B, Net>| {
        contrast(learner.adapt(&episodes.support).predict(twice(episodes.queries.clone())))
    };
    assert!(predict(&learner) > 1e-2, "{}", predict(&learner));
    assert!(predict(&learner.with_test_steps(0)) < 1e-5);
}

#[test]
fn a_network_without_a_context_is_refused_with_what_it_has() {
    let device = Default::default();
    let plain: Mlp<B> = MlpConfig::new(1).with_layers(vec![4, 1]).init(&device);
    let error = Maml::cavia(plain, InnerLoop::new(1, 0.1)).unwrap_err();
    let AdaptError::NothingMoves { mask, names } = &error else { panic!("{error}") };
    assert_eq!(mask, "only context");
    let layers = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"];
    assert_eq!(*names, layers);
    assert!(error.to_string().contains("layers.0.weight, layers.0.bias"), "{error}");
    let error = Maml::cavia(conv4(0), InnerLoop::new(1, 0.1)).unwrap_err();
    assert!(error.to_string().contains("encoder.blocks.0.conv.weight"), "{error}");
}
