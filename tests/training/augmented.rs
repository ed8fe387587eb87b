//! Training on augmented images, whose bytes are prepared ahead of the steps.

use std::sync::Arc;

use burn::module::AutodiffModule;
use fewshot::data::{AugmentSpec, Augmentation, ImageShape};
use fewshot::episode::{Classification, Mixing, TaskSource};
use fewshot::learners::heads::SimpleShot;
use fewshot::learners::{BaseClassifierConfig, EmbeddingLearner};

use super::*;
use crate::sources::BatchesAlone;
use crate::written::Written;

const STEPS: u64 = 5;

fn augmentation() -> Augmentation {
    "pad=4,rotate,erase"
        .parse::<AugmentSpec>()
        .unwrap()
        .for_image(ImageShape::new(1, 28, 28))
        .unwrap()
}

fn episodes() -> EpisodeSampler {
    let sampler = glyphs().train.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap();
    sampler.with_augmentation(augmentation()).unwrap()
}

/// A run in micro-batches of this size.
struct Small {
    micro_batch: Option<usize>,
    stop_at: Option<u64>,
    resume: bool,
}

const SMALL: Small = Small { micro_batch: None, stop_at: None, resume: false };

fn trained<L: MetaLearner<B>>(
    learner: L,
    folder: &Path,
    source: impl TaskSource<Kind = Classification>,
    Small { micro_batch, stop_at, resume }: Small,
) -> Result<Vec<f32>, TrainError> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let flag = interrupt.clone();
    let trainer = MetaTrainer::new(learner, Adam::new().init());
    let trainer = if resume { trainer.resume_from(folder) } else { trainer.run_folder(folder) };
    let trainer = trainer.episodes(source).steps(STEPS).meta_batch(4).interrupt(interrupt);
    let trainer = trainer.observe(move |event| {
        if let (Event::Step { metrics, .. }, Some(stop)) = (event, stop_at) {
            flag.fetch_or(metrics.step == stop, Ordering::Relaxed);
        }
    });
    let trainer = match micro_batch {
        Some(tasks) => trainer.micro_batch(tasks),
        None => trainer,
    };
    Ok(parameters::<Flex>(&trainer.fit::<B>()?.learner))
}

#[test]
fn a_queue_changes_no_bit() {
    for micro_batch in [None, Some(1), Some(3)] {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let ahead = Small { micro_batch, ..SMALL };
        let in_the_step = Small { micro_batch, ..SMALL };
        let ahead = trained(learner(), folders[0].path(), episodes(), ahead).unwrap();
        let expected =
            trained(learner(), folders[1].path(), BatchesAlone(episodes()), in_the_step).unwrap();
        assert_eq!(ahead, expected, "{micro_batch:?}");
        let [one, other] = folders.each_ref().map(|folder| metrics(folder.path()));
        assert_eq!(one, other);
    }
    let plain = tempfile::tempdir().unwrap();
    let plain_source = glyphs().train.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_ne!(
        trained(learner(), plain.path(), plain_source, SMALL).unwrap(),
        trained(learner(), folder.path(), episodes(), SMALL).unwrap()
    );
}

/// A classically trained encoder, on mini-batches of mixed images.
fn classical() -> (impl MetaLearner<B>, EpisodeSampler) {
    let config = Conv4Config::omniglot().with_channels(4);
    let device = Default::default();
    B::seed(&device, 3);
    let mixing = Mixing { mixup: Some(0.5), cutmix: Some(1.0) };
    let sampler = EpisodeSampler::mini_batches(glyphs().train, 20, 1).unwrap();
    let sampler = sampler.with_augmentation(augmentation()).unwrap().with_mixing(mixing).unwrap();
    let classes = BaseClassifierConfig::new(config.features(), sampler.base_classes());
    let learner = EmbeddingLearner::with_head(config.init::<B>(&device), SimpleShot::new());
    (learner.with_base_classifier(classes.init(&device)), sampler)
}

#[test]
fn learners_of_episodes_refuse_mini_batches_and_tests_do() {
    let mini_batches = || EpisodeSampler::mini_batches(glyphs().train, 5, 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let device = Default::default();
    let network = Classifier::new(Conv4Config::omniglot().init::<B>(&device), 64, 5, &device);
    let maml = Maml::new(network, InnerLoop::new(1, 0.4)).unwrap();
    let refused = [
        trained(learner(), folder.path(), mini_batches(), SMALL),
        trained(maml, folder.path(), mini_batches(), SMALL),
    ];
    for refused in refused {
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("mini-batches of images are for classical training"), "{told}");
    }
    let test = || Evaluator::new(2).run::<Flex>(&learner().valid(), &mini_batches(), &device);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a test needs tasks with queries"));
}

#[test]
fn a_run_on_mixed_images_goes_on_where_it_was_stopped() {
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (learner, sampler) = classical();
    let expected = trained(learner, whole.path(), sampler, SMALL).unwrap();
    let (learner, sampler) = classical();
    let stopped = trained(learner, parts.path(), sampler, Small { stop_at: Some(2), ..SMALL });
    assert!(matches!(stopped, Err(TrainError::Interrupted { step: 2 })));
    let (learner, sampler) = classical();
    let resumed = trained(learner, parts.path(), sampler, Small { resume: true, ..SMALL });
    assert_eq!(resumed.unwrap(), expected);
    // The same without mixing is another run.
    let (learner, sampler) = classical();
    let sampler = sampler.with_mixing(Mixing::default()).unwrap();
    let unmixed = trained(learner, parts.path(), sampler, Small { resume: true, ..SMALL });
    let error = unmixed.unwrap_err().to_string();
    assert!(error.contains("mixing"), "{error}");
}

#[test]
fn an_image_that_cannot_be_prepared_ends_training_with_one_error() {
    let images = glyphs().train;
    let protocol = Protocol::new(5, 1).with_queries(1);
    // A class that the fourth episode is the first to show.
    let plain = images.sampler(protocol, 1).unwrap();
    let shows = |index: u64, class: usize| {
        plain.episode(index).classes.iter().any(|draw| draw.class == class)
    };
    let is_new = |class: &usize| shows(3, *class) && !(0..3).any(|index| shows(index, *class));
    let gone = (0..images.classes()).find(is_new).unwrap();
    let sampler = EpisodeSampler::new(Written { images, gone: Some(gone) }, protocol, 1).unwrap();
    let sampler = sampler.with_augmentation(augmentation()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trainer = MetaTrainer::new(learner(), Adam::new().init());
    let trainer = trainer.run_folder(folder.path().join("run")).episodes(sampler).steps(STEPS);
    let error = trainer.fit::<B>().err().unwrap();
    let text = error.to_string();
    let TrainError::Preparation { step, folder: Some(_), .. } = error else { panic!("{text}") };
    assert_eq!(step, 3);
    assert!(text.contains(" is gone; training stopped; the last good state is in "), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn views_of_a_test_are_averaged() {
    let device = Default::default();
    let learner = learner().valid();
    let test = || glyphs().test.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap();
    let views = |views| {
        let sampler = test().with_views(augmentation(), views).unwrap();
        Evaluator::new(20).run(&learner, &sampler, &device)
    };
    let plain = Evaluator::new(20).run(&learner, &test(), &device);
    assert_eq!((views(1).accuracy, views(1).views), (plain.accuracy, 1));
    let averaged = views(4);
    assert_ne!(averaged.accuracy, plain.accuracy);
    assert!(averaged.to_string().contains("20 episodes, 4 views, "), "{averaged}");
    assert_eq!(views(4).accuracy, averaged.accuracy);
}
