use super::*;
use crate::data::Sinusoids;
use crate::episode::RegressionSampler;
use crate::train::Evaluator;
use burn_train::metric::{AccuracyMetric, LossMetric};
use fewshot_models::MlpConfig;

#[test]
fn a_validation_finds_what_the_evaluator_finds() {
    let folder = tempfile::tempdir().unwrap();
    let device = Default::default();
    // Batches of 20 tasks and of 5.
    let source = sampler(5, 8);
    assert_eq!(source.test_batch_size(), 20);
    let tasks = TaskLoader::<B, _>::training(sampler(5, 7), STEPS, META_BATCH, &device);
    let model = MetaModel::new(proto_net(), &tasks).unwrap();
    let validation = Arc::new(TaskLoader::<Flex, _>::validation(source.clone(), 25, &device));
    let recording = Recording::default();
    let trained = SupervisedTraining::new(&folder, Arc::new(tasks), validation)
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .metric_valid_numeric(MeanScore::new())
        .renderer(recording.clone())
        .with_application_logger(None)
        .launch(Trainee::new(model, Adam::new().init(), 1e-2));

    let found = Evaluator::new(25).score::<Flex, _>(trained.model.learner(), &source, &device);
    assert!(found.mean > 25.0 && found.mean < 99.0, "{found}");
    for metric in ["Accuracy", "Accuracy of tasks"] {
        let validated = recording.validated(metric);
        assert!((validated - found.mean).abs() < 1e-4, "{metric}: {validated}, not {found}");
    }
    assert_eq!(recording.last_text("Accuracy of tasks"), found.to_string());
    let trained = recording.trained("Accuracy");
    assert!(trained > 25.0 && trained <= 100.0, "{trained}");
}

/// A validation on a plain backend adapts by fine-tuning.
#[test]
fn a_validation_of_regression_finds_what_the_evaluator_finds() {
    let folder = tempfile::tempdir().unwrap();
    let device = Default::default();
    B::seed(&device, 3);
    let network = MlpConfig::new(1).with_layers(vec![20, 20, 1]).init::<B>(&device);
    let learner = Maml::new(network, InnerLoop::new(2, 0.01)).unwrap();
    let source = RegressionSampler::new(Sinusoids::default(), 5, 10, 1).unwrap();
    let (learner, recording) = by_burn_train(learner, source.clone(), 1, None, folder.path());
    let found = Evaluator::new(9).score::<Flex, _>(&learner, &source, &device);
    assert_eq!(recording.last_text("Squared error of tasks"), found.to_string());
    // Its loss is what it is judged by.
    for metric in ["Loss", "Squared error of tasks"] {
        let validated = recording.validated(metric);
        assert!((validated / found.mean - 1.0).abs() < 1e-6, "{metric}: {validated}, not {found}");
    }
    assert!(recording.trained("Loss").is_finite());
}
