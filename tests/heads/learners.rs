//! Heads on encoders: learners, trained on episodes or classically.

use std::slice;

use burn::backend::{Autodiff, Flex};
use burn::module::AutodiffModule;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Int, Tensor};
use fewshot::adapt::AdaptError;
use fewshot::data::GlyphsConfig;
use fewshot::learners::heads::{AnyHead, BdCspn, Head, SimpleShot};
use fewshot::learners::{BaseClassifier, BaseClassifierConfig, BaseLogits, EmbeddingLearner};
use fewshot::models::Conv4;
use fewshot::prelude::*;

type A = Autodiff<Flex>;

const SIZE: usize = 8;

fn glyphs() -> Splits {
    let config = GlyphsConfig {
        train_alphabets: 2,
        validation_alphabets: 1,
        test_alphabets: 1,
        characters: 6,
        drawers: 6,
        size: SIZE,
        ..GlyphsConfig::default()
    };
    Glyphs::generate(&config)
}

fn encoder<B: burn::tensor::backend::Backend>() -> Conv4<B> {
    let device = Default::default();
    B::seed(&device, 3);
    Conv4Config::new([1, SIZE, SIZE]).with_channels(8).with_blocks(2).init(&device)
}

/// Channels, height and width that two blocks leave.
const MAPS: [usize; 3] = [8, 2, 2];

fn sampler() -> EpisodeSampler {
    glyphs().train.sampler(Protocol::new(5, 1).with_queries(2), 3).unwrap()
}

fn number(x: Tensor<Flex, 1>) -> f64 {
    x.into_scalar().elem()
}

#[test]
fn a_batch_knows_the_class_of_each_example() {
    let sampler = sampler();
    let batch = sampler.batch::<Flex>(2..4, &Default::default());
    let drawn = [sampler.episode(2), sampler.episode(3)];
    let classes = |part: &[fewshot::episode::Episode]| {
        part.iter().flat_map(|one| &one.classes).map(|draw| draw.class).collect::<Vec<_>>()
    };
    assert_eq!(batch.classes().unwrap(), classes(&drawn));
    assert_eq!(batch.part(1..2).classes().unwrap(), classes(slice::from_ref(&drawn[1])));
    let found: Vec<i64> = batch.base_labels().unwrap().into_data().iter().collect();
    // Of each task five of the support, one a class, then two queries of each class.
    let examples = drawn.iter().flat_map(|one| {
        let classes = one.classes.iter().map(|draw| draw.class as i64);
        classes.clone().chain(classes.flat_map(|class| [class; 2])).collect::<Vec<_>>()
    });
    assert_eq!(found, examples.collect::<Vec<_>>());
    assert!(sampler.base_classes() >= 12 && found.iter().all(|&class| class < 12));
}

#[test]
fn the_loss_of_base_classes_is_a_smoothed_cross_entropy() {
    let device = Default::default();
    let config = BaseClassifierConfig::new(2, 3).with_label_smoothing(0.3);
    let classes: BaseClassifier<Flex> = config.init(&device);
    let embeddings = Tensor::<Flex, 2>::from_data([[1.0, -2.0], [0.5, 0.25]], &device);
    let labels = Tensor::<Flex, 1, Int>::from_data([2, 0], &device);
    let (loss, logits) = classes.loss(embeddings, labels);
    let values: Vec<f64> = logits.into_data().iter::<f64>().collect();
    let wanted: f64 = values
        .chunks(3)
        .zip([2, 0])
        .map(|(row, label)| {
            let sum = row.iter().map(|value| value.exp()).sum::<f64>().ln();
            let target = |class| if class == label { 0.7 + 0.1 } else { 0.1 };
            row.iter().enumerate().map(|(class, value)| target(class) * (sum - value)).sum::<f64>()
        })
        .sum();
    assert!((number(loss) - wanted / 2.0).abs() < 1e-5);
}

#[test]
fn cosine_logits_do_not_depend_on_lengths() {
    let device = Default::default();
    let config = BaseClassifierConfig::new(4, 3).with_logits(BaseLogits::Cosine { scale: 10.0 });
    let classes: BaseClassifier<Flex> = config.init(&device);
    let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0, 0.5, -1.0]], &device);
    let [one, other] = [x.clone(), x.clone() * 7.0].map(|x| classes.logits(x).into_data());
    one.assert_approx_eq::<f32>(&other, Default::default());
    assert!(one.iter::<f32>().all(|value| value.abs() <= 10.0));
    let scaled = |scale: f64| {
        Flex::seed(&device, 3);
        let config = BaseClassifierConfig::new(4, 3).with_logits(BaseLogits::Cosine { scale });
        config.init::<Flex>(&device).logits(x.clone())
    };
    let doubled = (scaled(10.0) * 2.0).into_data();
    scaled(20.0).into_data().assert_approx_eq::<f32>(&doubled, Default::default());
}

#[test]
fn images_are_shown_in_their_quarter_turns() {
    let device = Default::default();
    let config = BaseClassifierConfig::new(4, 3).with_rotation(1.0);
    let classes: BaseClassifier<Flex> = config.init(&device);
    let image = Tensor::<Flex, 4>::from_data([[[[1.0, 2.0], [3.0, 4.0]]]], &device);
    let shown: Vec<f32> = classes.training_images(image).into_data().iter().collect();
    // As numpy.rot90 turns them.
    let turns = [[1., 2., 3., 4.], [2., 4., 1., 3.], [4., 3., 2., 1.], [3., 1., 4., 2.]];
    assert_eq!(shown, turns.concat());
}

#[test]
fn classical_training_learns_the_base_classes() {
    for rotation in [0.0, 0.5] {
        let sampler = glyphs().train.sampler(Protocol::new(8, 1).with_queries(3), 3).unwrap();
        let features = MAPS.iter().product();
        let config = BaseClassifierConfig::new(features, sampler.base_classes());
        let classes = config.with_rotation(rotation).init::<A>(&Default::default());
        let learner = EmbeddingLearner::with_head(encoder::<A>(), SimpleShot::new())
            .with_base_classifier(classes);
        let trainer = MetaTrainer::new(learner, Adam::new().init()).episodes(sampler.clone());
        let trained = trainer.learning_rate(0.01).steps(60).fit::<A>().unwrap().learner;
        // The encoder is what few-shot tasks are learned with.
        let test = glyphs().test.sampler(Protocol::new(3, 1).with_queries(3), 5).unwrap();
        let score = |learner: &EmbeddingLearner<Flex, Conv4<Flex>, SimpleShot<Flex>>| {
            let found = Evaluator::new(100).run::<Flex>(learner, &test, &Default::default());
            assert!(!found.transductive);
            found.accuracy
        };
        let untrained = EmbeddingLearner::with_head(encoder::<Flex>(), SimpleShot::new());
        let [trained, untrained] = [score(&trained), score(&untrained)];
        assert!(trained > untrained, "rotation {rotation}: {trained} after {untrained}");
    }
}

#[test]
fn episodes_of_unknown_classes_are_refused() {
    let device = Default::default();
    let learner = |classes| {
        let classes = BaseClassifierConfig::new(MAPS.iter().product(), classes).init(&device);
        EmbeddingLearner::with_head(encoder::<A>(), SimpleShot::new()).with_base_classifier(classes)
    };
    let batch = sampler().batch::<A>(0..4, &device);
    assert!(learner(12).check(&batch).is_ok());
    let found = learner(2).check(&batch);
    assert!(matches!(found, Err(AdaptError::BaseClasses { classes: 2, class: Some(_) })));
    let unknown = EpisodeBatch::from(batch.into_tensors());
    let found = learner(12).check(&unknown);
    assert!(matches!(found, Err(AdaptError::BaseClasses { classes: 12, class: None })));
}

#[test]
fn episodes_train_encoder_and_head() {
    let device = Default::default();
    let sampler = sampler();
    let batch = sampler.batch::<Flex>(0..20, &device);
    let trained_on_episodes = [
        "prototypes",
        "simpleshot",
        "matching",
        "relation",
        "meta-baseline",
        "simple-cnaps",
        "feat",
        "dn4",
        "deep-emd",
        "r2d2",
        "meta-opt-net",
    ];
    for name in trained_on_episodes {
        let head = AnyHead::<A>::with_name(name, MAPS, &device).unwrap();
        let learner = EmbeddingLearner::with_head(encoder::<A>(), head);
        let loss = |learner: &EmbeddingLearner<Flex, Conv4<Flex>, AnyHead<Flex>>| {
            let logits = learner.outputs(&batch, BnStatistics::Batch);
            number(learner.head().loss(logits, batch.query_labels.clone()))
        };
        let before = loss(&learner.valid());
        let trainer = MetaTrainer::new(learner, Adam::new().init()).episodes(sampler.clone());
        let trainer = trainer.learning_rate(0.005).meta_batch(2).steps(40);
        let after = loss(&trainer.fit::<A>().unwrap().learner);
        assert!(after < before, "{name}: {after} after {before}");
    }
}

#[test]
fn a_transductive_learner_says_so_and_needs_all_queries_at_once() {
    let device = Default::default();
    let sampler = sampler();
    let learner = EmbeddingLearner::with_head(encoder::<Flex>(), BdCspn::new());
    let found = Evaluator::new(20).run::<Flex>(&learner, &sampler, &device);
    assert!(found.transductive && found.to_string().ends_with(", transductive)"), "{found}");
    let batch = sampler.batch::<Flex>(0..2, &device);
    let all = learner.adapt(&batch.support).predict(batch.queries.clone());
    let outputs = learner.outputs(&batch, BnStatistics::Running);
    all.clone().into_data().assert_approx_eq::<f32>(&outputs.into_data(), Default::default());
    // In parts they are others.
    assert!(learner.transductive());
    let half = batch.queries.clone().narrow(1, 0, 5);
    let part = learner.adapt(&batch.support).predict(half);
    assert!(number((all.narrow(1, 0, 5) - part).abs().max()) > 1e-3);
}
