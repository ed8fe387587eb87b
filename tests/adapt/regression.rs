//! Regression: what the inner loop moves, what is refused, the tasks, and training as a whole.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::{Autodiff, Flex};
use burn::module::AutodiffModule;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use fewshot::adapt::{AdaptError, Mask, Proximal, adapt};
use fewshot::episode::{EpisodeError, Measure, Regression, RegressionBatch, TaskKind, TaskSource};
use fewshot::models::Mlp;
use fewshot::precision::LossScale;
use fewshot::prelude::*;
use fewshot::train::{Checkpoint, Event, RunFolder};
use serde_json::Value;

use crate::curves;
use crate::golden::Golden;
use crate::laws::read;
use crate::named::{parameters, with_values};

type B = Autodiff<Flex>;

fn golden() -> (Mlp<B>, RegressionBatch<B>) {
    let network = &Golden::read().networks["mlp"];
    let mlp = with_values::<B, _>(curves::mlp(), &network.parameters(""), DType::F32);
    (mlp, curves::batch(network, DType::F32))
}

#[test]
fn anil_moves_the_last_layer_of_an_mlp_alone() {
    let (mlp, batch) = golden();
    let inner = InnerLoop::new(3, 0.05);
    let predict = |learner: Maml<B, Mlp<B>>| {
        read(learner.adapt(&batch.support).predict(batch.queries.inputs.clone()))
    };
    let found = predict(Maml::anil(mlp.clone(), inner.clone()).unwrap());

    let last = inner.clone().with_mask(Mask::Except(vec!["layers.0".into(), "layers.1".into()]));
    let flat = |tensor: &Tensor<B, 5>, task| tensor.clone().narrow(0, task, 1).reshape([-1, 1]);
    let mut expected = Vec::new();
    for task in 0..2 {
        let x = Tensor::from_inner(flat(&batch.support.inputs, task));
        let y = batch.support.targets.clone().narrow(0, task, 1).squeeze_dim::<2>(0);
        let y = Tensor::from_inner(y);
        let loss =
            |mlp: &Mlp<Autodiff<B>>| (mlp.forward(x.clone()) - y.clone()).powi_scalar(2).mean();
        let moved = adapt(&mlp, loss, &last).unwrap();
        expected.extend(read(moved.forward(flat(&batch.queries.inputs, task))));
    }
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
    }
    let all = predict(Maml::new(mlp, inner).unwrap());
    assert!(found.iter().zip(&all).any(|(one, two)| (one - two).abs() > 1e-2));
}

/// At a rate beyond which gradient descent goes away from every minimum.
#[test]
fn implicit_maml_adapts_where_steps_of_a_fixed_length_diverge() {
    let (mlp, batch) = golden();
    let (inner, proximal) =
        (InnerLoop::new(60, 2.0), Proximal { strength: 2.0, iterations: 2, damped: false });
    let plain = Maml::new(mlp.clone(), inner.clone()).unwrap();
    assert!(plain.divergence(&batch).is_some());
    let implicit = Maml::implicit(mlp, inner, proximal).unwrap();
    assert_eq!(implicit.divergence(&batch), None);
    let error = |learner: &Maml<B, Mlp<B>>, steps| {
        let learner = learner.clone().with_test_steps(steps);
        let support = batch.support.clone();
        let outputs = learner.adapt(&support).predict(support.inputs.clone());
        read(Regression::loss(outputs, support.targets))[0]
    };
    let (start, end) = (error(&implicit, 0), error(&implicit, 60));
    assert!(end < start, "{start} before, {end} after");
}

#[test]
fn damped_implicit_maml_adapts_as_maml_does() {
    let (mlp, batch) = golden();
    let (inner, proximal) =
        (InnerLoop::new(3, 0.05), Proximal { strength: 2.0, iterations: 2, damped: true });
    let predict = |learner: Maml<B, Mlp<B>>| {
        read(learner.adapt(&batch.support).predict(batch.queries.inputs.clone()))
    };
    let implicit = |proximal| {
        predict(Maml::implicit(mlp.clone(), inner.clone(), proximal).expect("an inner loop"))
    };
    let plain = predict(Maml::new(mlp.clone(), inner.clone()).expect("an inner loop"));
    assert_eq!(implicit(proximal), plain);
    assert_ne!(implicit(Proximal { damped: false, ..proximal }), plain);
}

/// `F.mse_loss` of each task, which is a mean over examples and values.
#[test]
fn losses_are_means_over_examples_and_values_and_sums_over_tasks() {
    let tensor = |values| Tensor::<Flex, 3>::from_data(values, &Default::default());
    let outputs = tensor([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 1.0]]]);
    let targets = tensor([[[1.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, -2.0]]]);
    let loss = Regression::loss(outputs.clone(), targets.clone());
    assert_eq!(read(loss), [(4.0 + 9.0) / 4.0 + 9.0 / 4.0]);
    assert_eq!(read(Regression::scores(outputs, targets)), [13.0 / 4.0, 9.0 / 4.0]);
}

fn of_two_values() -> (Maml<B, Mlp<B>>, RegressionBatch<B>) {
    let (mlp, mut batch) = golden();
    for examples in [&mut batch.support, &mut batch.queries] {
        examples.targets = examples.targets.clone().repeat_dim(2, 2);
    }
    (Maml::new(mlp, InnerLoop::new(1, 0.1)).unwrap(), batch)
}

#[test]
fn targets_of_another_length_are_found_before_training() {
    let (learner, batch) = of_two_values();
    let error = learner.check(&batch).unwrap_err();
    assert_eq!(error, AdaptError::Outputs { targets: 2, outputs: 1 });
    assert!(learner.check(&golden().1).is_ok());
    // With nothing to differentiate twice, too.
    let first = Maml::first_order(golden().0, InnerLoop::new(1, 0.1)).unwrap();
    assert_eq!(first.check(&batch), Err(error));
}

#[test]
#[should_panic(expected = "outputs and targets have one shape")]
fn queries_whose_targets_alone_have_another_length_are_refused() {
    let (learner, RegressionBatch { queries, .. }) = of_two_values();
    let batch = RegressionBatch { queries, ..golden().1 };
    let error = learner.check(&batch).unwrap_err();
    assert_eq!(error, AdaptError::Outputs { targets: 2, outputs: 1 });
    learner.meta_gradients(&batch, LossScale::ONE);
}

#[test]
#[should_panic(expected = "a network with outputs of 1 values cannot learn targets of 2")]
fn targets_of_another_length_are_not_learned() {
    let (learner, batch) = of_two_values();
    learner.meta_gradients(&batch, LossScale::ONE);
}

fn waves(seed: u64) -> RegressionSampler {
    RegressionSampler::new(Sinusoids::default(), 5, 7, seed).unwrap()
}

#[test]
fn tasks_without_examples_are_refused() {
    for (shots, queries) in [(0, 5), (5, 0), (0, 0)] {
        let error = RegressionSampler::new(Sinusoids::default(), shots, queries, 1).unwrap_err();
        let EpisodeError::Samples { shots: found_shots, queries: found_queries } = error else {
            panic!("{error}")
        };
        assert_eq!((found_shots, found_queries), (shots, queries));
    }
}

#[test]
fn a_task_is_the_same_whatever_range_it_is_drawn_in() {
    let drawn = |seed, indices: std::ops::Range<u64>, place| {
        let batch = waves(seed).tasks::<Flex>(indices, &Default::default()).unwrap();
        let RegressionBatch { support, queries } = batch;
        assert_eq!(support.inputs.dims()[1..], [5, 1, 1, 1]);
        assert_eq!(queries.inputs.dims()[1..], [7, 1, 1, 1]);
        let inputs = [support.inputs, queries.inputs].map(|all| read(all.narrow(0, place, 1)));
        let targets = [support.targets, queries.targets].map(|all| read(all.narrow(0, place, 1)));
        [inputs.concat(), targets.concat()]
    };
    let task = drawn(4, 3..4, 0);
    assert_eq!(drawn(4, 0..6, 3), task);
    assert_eq!(drawn(4, 2..4, 1), task);
    for [inputs, targets] in [drawn(4, 0..6, 2), drawn(5, 3..4, 0)] {
        assert_ne!(inputs, task[0]);
        assert_ne!(targets, task[1]);
    }
}

fn learner() -> Maml<B, Mlp<B>> {
    let device = Default::default();
    B::seed(&device, 3);
    let network = MlpConfig::new(1).with_layers(vec![16, 16, 1]).init(&device);
    Maml::new(network, InnerLoop::new(2, 0.02)).unwrap()
}

fn run(
    folder: &Path,
    resume: bool,
    (steps, stop_at): (u64, Option<u64>),
) -> Result<Trained<Maml<Flex, Mlp<Flex>>>, TrainError> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let flag = interrupt.clone();
    let trainer = MetaTrainer::new(learner(), Adam::new().init());
    let trainer = if resume { trainer.resume_from(folder) } else { trainer.run_folder(folder) };
    trainer
        .learning_rate(0.01)
        .episodes(waves(1))
        .validation(waves(2), 30)
        .steps(steps)
        .meta_batch(4)
        .validate_every(4)
        .checkpoint_every(3)
        .clip_norm(10.0)
        .interrupt(interrupt)
        .observe(move |event| {
            if let (Event::Step { metrics, .. }, Some(stop)) = (event, stop_at) {
                flag.fetch_or(metrics.step == stop, Ordering::Relaxed);
            }
        })
        .fit::<B>()
}

/// The metrics of a run without how long its steps took.
fn metrics(folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| line.split(",\"phase_ms\"").next().unwrap().to_owned() + "\n").collect()
}

#[test]
fn training_on_sinusoids_lowers_the_error() {
    let trained = MetaTrainer::new(learner(), Adam::new().init())
        .learning_rate(0.01)
        .episodes(waves(1))
        .validation(waves(2), 30)
        .steps(300)
        .meta_batch(4)
        .observe(|_| {})
        .fit::<B>()
        .unwrap();
    let score = |learner: &Maml<Flex, Mlp<Flex>>| {
        Evaluator::new(100).score(learner, &waves(9), &Default::default())
    };
    let (before, after) = (score(&learner().valid()), score(&trained.learner));
    assert_eq!(after.measure, Measure::SquaredError);
    assert!(after.mean < 0.6 * before.mean, "{before} to {after}");
    // By adaptation, not by a better guess for all waves.
    let unadapted = score(&trained.learner.clone().with_test_steps(0));
    assert!(after.mean < 0.8 * unadapted.mean, "{unadapted} to {after}");
}

#[test]
fn a_validation_that_diverges_stops_the_run_and_keeps_what_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let network = learner().network().clone();
    let steep = Maml::new(network, InnerLoop::new(1, 3.0)).unwrap().with_test_steps(500);
    let error = MetaTrainer::new(steep, Adam::new().init())
        .episodes(waves(1))
        .validation(waves(2), 5)
        .steps(2)
        .run_folder(&run)
        .observe(|_| {})
        .fit::<B>()
        .unwrap_err();
    let TrainError::NonFiniteValidation { mean, step: 2, folder: Some(_) } = error else {
        panic!("{error}")
    };
    assert!(!mean.is_finite());
    assert!(Checkpoint::read(&RunFolder::last(&run)).is_ok());
}

#[test]
fn a_run_on_sinusoids_that_was_interrupted_ends_as_one_that_was_not() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(whole.path(), false, (10, None)).unwrap();
    for stop in [2, 5] {
        let parts = tempfile::tempdir().unwrap();
        let error = run(parts.path(), false, (10, Some(stop))).unwrap_err();
        assert!(matches!(error, TrainError::Interrupted { step } if step == stop), "{error}");
        let resumed = run(parts.path(), true, (10, None)).unwrap();
        let all = |learner: &Maml<Flex, Mlp<Flex>>| parameters::<Flex, _>(learner);
        assert_eq!(all(&resumed.learner), all(&expected.learner), "stop {stop}");
        assert_ne!(all(&resumed.learner), all(&learner().valid()));
        assert_eq!(resumed.report.progress, expected.report.progress);
        assert_eq!(metrics(parts.path()), metrics(whole.path()), "stop {stop}");
    }
}

#[test]
fn metrics_of_a_regression_are_squared_errors_and_no_accuracies() {
    let folder = tempfile::tempdir().unwrap();
    let trained = run(folder.path(), false, (8, None)).unwrap();
    let text = fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    assert!(!text.contains("accuracy"), "{text}");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (validations, steps): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.get("validation").is_some());
    assert_eq!((steps.len(), validations.len()), (8, 2));
    let mut least = f64::INFINITY;
    for line in validations {
        assert_eq!(line["validation"]["measure"], "squared_error");
        least = least.min(line["validation"]["mean"].as_f64().unwrap());
    }
    // The best is the one of the least error, not of the largest.
    let best = Evaluator::new(30).score(&trained.learner, &waves(2), &Default::default());
    assert!((best.mean - least).abs() < 1e-9 * least, "{best} is not {least}");
}
