//! Trains a prototypical network by `burn-train`: its dashboard in a terminal, lines elsewhere, with
//! metrics, checkpoints of the epochs and early stopping.
//!
//! `cargo run --release --features train-tui --example 06_dashboard -- runs/dashboard 10`

use std::env;
use std::sync::Arc;

use burn::backend::{Autodiff, Flex};
use burn::record::DefaultRecorder;
use burn::tensor::backend::Backend;
use burn_train::metric::store::{Aggregate, Direction, Split};
use burn_train::metric::{AccuracyMetric, LearningRateMetric, LossMetric};
use burn_train::{
    Learner as Trainee, MetricEarlyStoppingStrategy, StoppingCondition, SupervisedTraining,
};
use fewshot::prelude::*;
use fewshot::train::dashboard::{MeanScore, MetaModel, TaskLoader};

type B = Autodiff<Flex>; // or Autodiff<Cuda>, Autodiff<Wgpu>: nothing else changes

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().unwrap_or("runs/dashboard".to_owned());
    let epochs = arguments.next().map_or(Ok(10), |epochs| epochs.parse())?;

    let device = Default::default();
    B::seed(&device, 1);
    let glyphs = Glyphs::generate(&GlyphsConfig::default());
    let train = glyphs.train.sampler(Protocol::new(20, 1).with_queries(5), 1)?;
    let validation = glyphs.validation.sampler(Protocol::new(5, 1), 1)?;

    // An epoch is 20 steps of one task each.
    let train = TaskLoader::<B, _>::training(train, 20, 1, &device);
    let validation = TaskLoader::validation(validation, 100, &device);
    let learner = ProtoNet::new(Conv4Config::omniglot().init(&device));
    let model = MetaModel::new(learner, &train)?;

    let stopping = MetricEarlyStoppingStrategy::new(
        &LossMetric::<Flex>::new(),
        Aggregate::Mean,
        Direction::Lowest,
        Split::Valid,
        StoppingCondition::NoImprovementSince { n_epochs: 5 },
    );
    let trained = SupervisedTraining::new(folder, Arc::new(train), Arc::new(validation))
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .metric_train_numeric(LearningRateMetric::new())
        .metric_valid_numeric(MeanScore::new())
        .with_file_checkpointer(DefaultRecorder::new())
        .early_stopping(stopping)
        .num_epochs(epochs)
        .summary()
        .launch(Trainee::new(model, Adam::new().init(), 1e-3));

    let test = glyphs.test.sampler(Protocol::new(5, 1), 1)?;
    println!("{}", Evaluator::new(200).run(trained.model.learner(), &test, &device));
    Ok(())
}
