//! Training as a whole: it learns, it resumes bit for bit, and nothing is lost when it fails.
#![cfg(feature = "flex")]

#[path = "training/augmented.rs"]
mod augmented;
#[path = "training/outer_step.rs"]
mod outer_step;
#[path = "training/packs.rs"]
mod packs;
#[path = "training/reading.rs"]
mod reading;
#[path = "training/reptile.rs"]
mod reptile;
#[path = "training/resuming.rs"]
mod resuming;
#[path = "training/scale.rs"]
mod scale;
mod sources;
#[path = "sources/written.rs"]
mod written;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::{Autodiff, Flex};
use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::AdamConfig;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot::data::GlyphsConfig;
use fewshot::hardware::Precision;
use fewshot::models::Conv4;
use fewshot::prelude::*;
use fewshot::train::{Checkpoint, Event, RunFolder};

type B = Autodiff<Flex>;
type Net<B> = ProtoNet<B, Conv4<B>>;

const STEPS: u64 = 12;

fn glyphs() -> Splits {
    let config = GlyphsConfig {
        train_alphabets: 3,
        validation_alphabets: 1,
        test_alphabets: 1,
        characters: 8,
        ..GlyphsConfig::default()
    };
    Glyphs::generate(&config)
}

fn learner() -> Net<B> {
    let device = Default::default();
    B::seed(&device, 3);
    ProtoNet::new(Conv4Config::omniglot().with_channels(8).init(&device))
}

struct Setting {
    steps: u64,
    stop_at: Option<u64>,
    rate: f64,
}

/// A rate of so many digits shows whether numbers read back as they were written.
const WHOLE: Setting = Setting { steps: STEPS, stop_at: None, rate: 0.009_842_652_826_710_06 };

fn run(folder: &Path, resume: bool, setting: &Setting) -> Result<Trained<Net<Flex>>, TrainError> {
    run_of(learner(), folder, resume, setting)
}

fn run_of<L: MetaLearner<B>>(
    learner: L,
    folder: &Path,
    resume: bool,
    setting: &Setting,
) -> Result<Trained<L::InnerModule>, TrainError> {
    let splits = glyphs();
    let interrupt = Arc::new(AtomicBool::new(false));
    let (flag, stop_at) = (interrupt.clone(), setting.stop_at);
    let schedule = StepLrSchedulerConfig::new(setting.rate, 5).with_gamma(0.5).init().unwrap();
    let trainer = MetaTrainer::new(learner, Adam::new().init());
    let trainer = if resume { trainer.resume_from(folder) } else { trainer.run_folder(folder) };
    trainer
        .learning_rate(schedule)
        .episodes(splits.train.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap())
        .validation(splits.validation.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap(), 10)
        .steps(setting.steps)
        .meta_batch(2)
        .validate_every(5)
        .checkpoint_every(4)
        .clip_norm(1.0)
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

fn parameters<B: Backend>(module: &impl Module<B>) -> Vec<f32> {
    struct All(Vec<f32>);
    impl<B: Backend> ModuleVisitor<B> for All {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut all = All(Vec::new());
    module.visit(&mut all);
    all.0
}

#[test]
fn a_run_that_was_interrupted_anywhere_ends_as_one_that_was_not() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(whole.path(), false, &WHOLE).unwrap();
    let expected_metrics = metrics(whole.path());
    assert_eq!(expected_metrics.lines().count() as u64, STEPS + 3);
    for stop in [1, 5, 7, 11] {
        let parts = tempfile::tempdir().unwrap();
        let interrupted = run(parts.path(), false, &Setting { stop_at: Some(stop), ..WHOLE });
        let error = interrupted.unwrap_err();
        assert!(matches!(error, TrainError::Interrupted { step } if step == stop), "{error}");
        let resumed = run(parts.path(), true, &WHOLE).unwrap();
        assert_eq!(parameters(&resumed.learner), parameters(&expected.learner), "stop {stop}");
        assert_eq!(resumed.report.progress, expected.report.progress);
        let resumed = metrics(parts.path());
        assert_eq!(resumed, expected_metrics, "stop {stop}");
    }
}

#[test]
fn a_run_that_lost_its_last_steps_makes_them_again() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(whole.path(), false, &WHOLE).unwrap();
    let parts = tempfile::tempdir().unwrap();
    // What a kill after step 7 leaves: the checkpoint of step 5 and the metrics of step 7.
    run(parts.path(), false, &Setting { stop_at: Some(5), ..WHOLE }).unwrap_err();
    let last = fs::read(RunFolder::last(parts.path())).unwrap();
    run(parts.path(), true, &Setting { stop_at: Some(7), ..WHOLE }).unwrap_err();
    fs::write(RunFolder::last(parts.path()), last).unwrap();
    let resumed = run(parts.path(), true, &WHOLE).unwrap();
    assert_eq!(parameters(&resumed.learner), parameters(&expected.learner));
    assert_eq!(metrics(parts.path()), metrics(whole.path()));
}

#[test]
fn a_finished_run_can_be_made_longer() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(whole.path(), false, &Setting { steps: 15, ..WHOLE }).unwrap();
    let parts = tempfile::tempdir().unwrap();
    run(parts.path(), false, &Setting { steps: 10, ..WHOLE }).unwrap();
    let longer = run(parts.path(), true, &Setting { steps: 15, ..WHOLE }).unwrap();
    assert_eq!(parameters(&longer.learner), parameters(&expected.learner));
    assert_eq!(longer.report.steps, 15);
}

#[test]
fn another_setting_is_not_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), false, &Setting { steps: 2, ..WHOLE }).unwrap();
    let splits = glyphs();
    let error = MetaTrainer::new(learner(), AdamConfig::new().init())
        .episodes(splits.train.sampler(Protocol::new(4, 1).with_queries(3), 1).unwrap())
        .resume_from(folder.path())
        .fit::<B>()
        .unwrap_err();
    assert!(matches!(error, TrainError::OtherSettings { .. }), "{error}");
    let occupied = run(folder.path(), false, &WHOLE).unwrap_err();
    assert!(matches!(occupied, TrainError::Occupied { .. }), "{occupied}");
    let empty = tempfile::tempdir().unwrap();
    let nothing = run(empty.path(), true, &WHOLE).unwrap_err();
    assert!(matches!(nothing, TrainError::NothingToResume { .. }), "{nothing}");
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), false, &Setting { rate: 1e30, ..WHOLE }).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, TrainError::NonFiniteLoss { .. } | TrainError::NonFiniteParameters { .. }),
        "{text}"
    );
    assert!(text.contains("step") && text.contains("last good"), "{text}");
    let last = Checkpoint::read(&RunFolder::last(folder.path())).unwrap();
    let device = Default::default();
    let fresh = ProtoNet::<Flex, _>::new(Conv4Config::omniglot().with_channels(8).init(&device));
    let kept = last.load::<Flex, _, _>(fresh, &device);
    assert!(parameters::<Flex>(&kept.unwrap()).iter().all(|value| value.is_finite()));
}

#[test]
fn parameters_that_are_not_finite_are_never_kept_as_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let one_step = Setting { steps: 1, rate: 1e39, ..WHOLE };
    let error = run(folder.path(), false, &one_step).unwrap_err();
    assert!(matches!(error, TrainError::NonFiniteParameters { .. }), "{error}");
    assert!(!RunFolder::best(folder.path()).exists());
}

#[test]
fn a_checkpoint_of_another_architecture_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), false, &Setting { steps: 1, ..WHOLE }).unwrap();
    let device = Default::default();
    let other = ProtoNet::<Flex, _>::new(Conv4Config::omniglot().with_channels(16).init(&device));
    let last = Checkpoint::read(&RunFolder::last(folder.path())).unwrap();
    let error = last.load::<Flex, _, _>(other, &device).unwrap_err().to_string();
    assert!(error.contains("8 channels") && error.contains("16 channels"), "{error}");
}

#[test]
fn training_stops_when_validations_no_longer_improve() {
    let splits = glyphs();
    let protocol = Protocol::new(5, 1).with_queries(3);
    let trained = MetaTrainer::new(learner(), AdamConfig::new().init())
        // So small a rate changes no prediction: the first validation stays the best.
        .learning_rate(1e-12)
        .episodes(splits.train.sampler(protocol, 1).unwrap())
        .validation(splits.validation.sampler(protocol, 1).unwrap(), 1)
        .steps(60)
        .validate_every(1)
        .patience(3)
        .observe(|_| {})
        .fit::<B>()
        .unwrap();
    assert!(trained.report.steps < 60, "{} steps", trained.report.steps);
    assert_eq!(trained.report.progress.since_best, 3);
}

#[test]
fn a_trained_proto_net_passes_95_percent_on_glyphs() {
    let splits = Glyphs::generate(&GlyphsConfig::default());
    let test = splits.test.sampler(Protocol::new(5, 1), 2).unwrap();
    let train = splits.train.sampler(Protocol::new(20, 1).with_queries(5), 1).unwrap();
    let after = |steps| {
        let device = Default::default();
        B::seed(&device, 1);
        let learner = ProtoNet::<B, _>::new(Conv4Config::omniglot().init(&device));
        let trainer = MetaTrainer::new(learner, AdamConfig::new().init());
        let trainer = trainer.episodes(train.clone()).observe(|_| {});
        trainer.steps(steps).fit::<B>().unwrap().evaluate(&test, 200).accuracy
    };
    let (untrained, trained) = (after(1), after(150));
    assert!(trained > untrained + 10.0, "{untrained} % to {trained} %");
    assert!(trained > 95.0, "{trained} %");
}

#[test]
fn training_in_bf16_comes_as_far_as_in_f32() {
    let splits = Glyphs::generate(&GlyphsConfig::default());
    let test = splits.test.sampler(Protocol::new(5, 1), 2).unwrap();
    let train = splits.train.sampler(Protocol::new(10, 1).with_queries(5), 1).unwrap();
    let after = |steps, precision| {
        let device = Default::default();
        B::seed(&device, 1);
        let config = Conv4Config::omniglot().with_channels(16).with_precision(precision);
        let learner = ProtoNet::<B, _>::new(config.init(&device));
        let trainer = MetaTrainer::new(learner, AdamConfig::new().init());
        let trainer = trainer.episodes(train.clone()).observe(|_| {});
        let trained = trainer.steps(steps).fit::<B>().unwrap();
        (trained.evaluate(&test, 100).accuracy, parameters(&trained.learner))
    };
    let (untrained, _) = after(1, Precision::MixedBf16);
    let [(single, of_single), (low, of_low)] =
        [Precision::F32, Precision::MixedBf16].map(|precision| after(60, precision));
    assert_ne!(of_low, of_single);
    assert!(low > untrained + 10.0, "{untrained} % to {low} %");
    assert!((low - single).abs() < 3.0, "{low} % in bf16, {single} % in f32");
}

#[test]
fn settings_of_zero_are_refused() {
    let splits = glyphs();
    let trainer = || MetaTrainer::new(learner(), AdamConfig::new().init());
    assert!(matches!(trainer().fit::<B>(), Err(TrainError::NoEpisodes)));
    let episodes = splits.train.sampler(Protocol::new(5, 1), 1).unwrap();
    let zero = trainer().episodes(episodes).meta_batch(0).fit::<B>().unwrap_err();
    assert!(matches!(zero, TrainError::Zero(_)), "{zero}");
    let trainer = || trainer().episodes(splits.train.sampler(Protocol::new(5, 1), 1).unwrap());
    let zero = trainer().patience(0).fit::<B>().unwrap_err();
    assert!(matches!(zero, TrainError::Zero(_)), "{zero}");
    let validation = splits.validation.sampler(Protocol::new(5, 1), 1).unwrap();
    let zero = trainer().validation(validation, 0).fit::<B>().unwrap_err();
    assert!(matches!(zero, TrainError::Zero(_)), "{zero}");
    let zero = trainer().read_every(0).fit::<B>().unwrap_err();
    assert!(matches!(zero, TrainError::Zero(_)), "{zero}");
    let many = trainer().steps(u64::MAX).meta_batch(2).fit::<B>().unwrap_err();
    assert!(matches!(many, TrainError::TooManyEpisodes { .. }), "{many}");
    for norm in [0.0, -1.0, f64::NAN] {
        let error = trainer().clip_norm(norm).fit::<B>().unwrap_err();
        assert!(matches!(error, TrainError::ClipNorm(_)), "{error}");
    }
}
