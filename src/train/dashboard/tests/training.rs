use burn::module::{AutodiffModule, ModuleMapper};
use burn_train::{ExecutionStrategy, LearningComponentsMarker, MultiDeviceOptim};

use super::noted::Noted;
use super::*;
use crate::optim::FusedOptimizer;
use crate::precision::Precision;
use crate::train::MetaTrainer;
use crate::train::dashboard::MetaModelError;

/// Trains by the project's own trainer, with the same tasks, optimizer and rates.
fn by_meta_trainer<L, T>(learner: L, source: T, epochs: u64) -> L::InnerModule
where
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
{
    let trainer = MetaTrainer::new(learner, Adam::new().init()).observe(|_| {});
    let trainer = trainer.episodes(source).meta_batch(META_BATCH).steps(epochs * STEPS);
    trainer.learning_rate(schedule()).fit::<B>().unwrap().learner
}

#[test]
fn a_prototypical_network_ends_as_with_the_meta_trainer() {
    let folder = tempfile::tempdir().unwrap();
    let start = numbers::<B, _>(&proto_net());
    let (found, _) = by_burn_train(proto_net(), sampler(5, 7), 2, None, folder.path());
    let expected = by_meta_trainer(proto_net(), sampler(5, 7), 2);
    assert_eq!(numbers::<Flex, _>(&found), numbers::<Flex, _>(&expected));
    assert_ne!(numbers::<Flex, _>(&found), start);
}

#[test]
fn the_learner_of_an_epoch_can_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (expected, _) = by_burn_train(proto_net(), sampler(5, 7), 1, None, folder.path());
    let checkpoint = folder.path().join("checkpoint/model-1");
    let (model, _) = model_and_tasks();
    let recorder = DefaultRecorder::new();
    let loaded = model.valid().load_file(checkpoint, &recorder, &Default::default()).unwrap();
    assert_eq!(numbers::<Flex, _>(loaded.learner()), numbers::<Flex, _>(&expected));
}

#[test]
fn a_learner_that_anneals_ends_as_with_the_meta_trainer() {
    let folder = tempfile::tempdir().unwrap();
    let (found, _) = by_burn_train(annealed(), sampler(3, 7), 2, None, folder.path());
    let expected = by_meta_trainer(annealed(), sampler(3, 7), 2);
    assert_eq!(numbers::<Flex, _>(&found), numbers::<Flex, _>(&expected));
}

#[test]
fn a_training_that_goes_on_after_a_checkpoint_ends_as_if_it_had_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, stopped) = (folder.path().join("whole"), folder.path().join("stopped"));

    let (expected, _) = by_burn_train(proto_net(), sampler(5, 7), 2, None, &whole);
    let (half, _) = by_burn_train(proto_net(), sampler(5, 7), 1, None, &stopped);
    let (found, _) = by_burn_train(proto_net(), sampler(5, 7), 2, Some(1), &stopped);
    assert_eq!(numbers::<Flex, _>(&found), numbers::<Flex, _>(&expected));
    assert_ne!(numbers::<Flex, _>(&found), numbers::<Flex, _>(&half));

    let (whole, stopped) = (whole.join("annealed"), stopped.join("annealed"));
    let (expected, _) = by_burn_train(annealed(), sampler(3, 7), 2, None, &whole);
    by_burn_train(annealed(), sampler(3, 7), 1, None, &stopped);
    let (found, _) = by_burn_train(annealed(), sampler(3, 7), 2, Some(1), &stopped);
    assert_eq!(numbers::<Flex, _>(&found), numbers::<Flex, _>(&expected));
}

#[test]
fn a_learner_is_told_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let learner = Noted::<B, _>::new(proto_net());
    by_burn_train(learner.clone(), sampler(5, 7), 2, None, folder.path());
    assert_eq!(learner.steps(), [0, 1, 2, 3, 4, 5].map(Some));
    by_burn_train(learner.clone(), sampler(5, 7), 3, Some(2), folder.path());
    assert_eq!(learner.steps(), [6, 7, 8].map(Some));
}

type Model = MetaModel<B, ProtoNet<B, Conv4<B>>>;
type Optimizer = FusedOptimizer<Adam, Model, B>;
type Training = SupervisedTraining<LearningComponentsMarker<B, StepLrScheduler, Model, Optimizer>>;

fn model_and_tasks() -> (Model, TaskLoader<B, EpisodeSampler>) {
    let tasks = TaskLoader::training(sampler(5, 7), STEPS, META_BATCH, &Default::default());
    (MetaModel::new(proto_net(), &tasks).unwrap(), tasks)
}

fn launch(
    change: impl FnOnce(Training) -> Training,
    model: Model,
    tasks: TaskLoader<B, EpisodeSampler>,
) {
    let folder = tempfile::tempdir().unwrap();
    let validation = TaskLoader::<Flex, _>::validation(sampler(5, 8), 9, &Default::default());
    let training = SupervisedTraining::new(&folder, Arc::new(tasks), Arc::new(validation))
        .renderer(Recording::default())
        .with_application_logger(None);
    change(training).launch(Trainee::new(model, Adam::new().init(), schedule()));
}

#[test]
#[should_panic(expected = "enlarge the meta-batch where gradients would be accumulated")]
fn gradients_are_not_accumulated() {
    let (model, tasks) = model_and_tasks();
    launch(|training| training.grads_accumulation(2), model, tasks);
}

#[test]
#[should_panic(expected = "step 3, but the model has done 0 steps")]
fn a_model_made_for_another_epoch_is_refused() {
    let (model, tasks) = model_and_tasks();
    launch(|training| training, model, tasks.checkpoint(1));
}

#[test]
#[should_panic(expected = "an epoch is not divided among devices")]
fn a_strategy_for_several_devices_is_refused() {
    let (model, tasks) = model_and_tasks();
    let devices = vec![Default::default(); 2];
    let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
    launch(|training| training.with_training_strategy(strategy.into()), model, tasks);
}

#[test]
#[should_panic(expected = "the loss is NaN at step 0")]
fn a_loss_that_is_no_number_ends_the_training() {
    let (model, tasks) = model_and_tasks();
    struct Spoil;
    impl ModuleMapper<B> for Spoil {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            param.map(|value| Tensor::full_like(&value, f32::NAN).require_grad())
        }
    }
    launch(|training| training, model.map(&mut Spoil), tasks);
}

#[test]
fn a_learner_of_other_ways_than_the_tasks_is_refused() {
    let tasks = TaskLoader::<B, _>::training(sampler(5, 7), 1, 1, &Default::default());
    let error = MetaModel::new(annealed(), &tasks).unwrap_err().to_string();
    assert!(error.contains('5') && error.contains('3'), "{error}");
}

#[test]
fn a_learner_in_f16_is_refused_for_want_of_a_scaled_loss() {
    let device = Default::default();
    let learner = |precision| {
        ProtoNet::<B, _>::new(Conv4Config::omniglot().with_precision(precision).init(&device))
    };
    let tasks = TaskLoader::<B, _>::training(sampler(5, 7), 1, 1, &device);
    let refused = MetaModel::new(learner(Precision::MixedF16), &tasks);
    assert!(matches!(refused, Err(MetaModelError::Unscaled)));
    assert!(MetaModel::new(learner(Precision::MixedBf16), &tasks).is_ok());
}
