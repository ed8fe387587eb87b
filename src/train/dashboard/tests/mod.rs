//! What `burn-train` makes of a learner is what the project's own trainer and evaluator make of it.

mod loader;
mod metrics;
mod noted;
mod recording;
mod training;
mod validation;

use std::path::Path;
use std::sync::Arc;

use burn::backend::{Autodiff, Flex};
use burn::lr_scheduler::step::{StepLrScheduler, StepLrSchedulerConfig};
use burn::module::{Module, ModuleDisplay, ModuleVisitor, Param};
use burn::record::DefaultRecorder;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_train::metric::LossMetric;
use burn_train::{Learner as Trainee, SupervisedTraining};
use fewshot_models::nn::drawn;
use fewshot_models::{Classifier, Conv4, Conv4Config};

use super::{MeanScore, MetaModel, TaskLoader};
use crate::adapt::InnerLoop;
use crate::data::{Glyphs, GlyphsConfig};
use crate::episode::{EpisodeSampler, Protocol, TaskKind, TaskSource};
use crate::learners::{Annealing, Maml, MetaLearner, ProtoNet};
use crate::optim::Adam;
use recording::Recording;

type B = Autodiff<Flex>;

/// Steps of an epoch.
const STEPS: u64 = 3;

/// Tasks of a step.
const META_BATCH: u64 = 2;

fn sampler(ways: usize, seed: u64) -> EpisodeSampler {
    let config = GlyphsConfig { train_alphabets: 3, characters: 8, ..GlyphsConfig::default() };
    let protocol = Protocol::new(ways, 1).with_queries(3);
    Glyphs::generate(&config).train.sampler(protocol, seed).unwrap()
}

fn proto_net() -> ProtoNet<B, Conv4<B>> {
    let device = Default::default();
    B::seed(&device, 3);
    drawn::<B, _>(ProtoNet::new(Conv4Config::omniglot().with_channels(8).init(&device)))
}

/// A learner that is another one in each of its first four meta-steps.
fn annealed() -> Maml<B, Classifier<B, Conv4<B>>> {
    let device = Default::default();
    B::seed(&device, 3);
    let network = Conv4Config::omniglot_strided().with_channels(8);
    let classifier = Classifier::new(network.init(&device), network.features(), 3, &device);
    let annealing = Annealing { multi_step: 4, first_order: 2 };
    drawn::<B, _>(Maml::plus_plus(classifier, InnerLoop::new(2, 0.1), annealing).unwrap())
}

fn schedule() -> StepLrScheduler {
    StepLrSchedulerConfig::new(0.01, 2).with_gamma(0.5).init().unwrap()
}

/// Trains by `burn-train` up to `epochs`, from the checkpoint after an epoch if one is named.
fn by_burn_train<L, T>(
    learner: L,
    source: T,
    epochs: usize,
    checkpoint: Option<usize>,
    folder: &Path,
) -> (L::InnerModule, Recording)
where
    T: TaskSource<Kind: TaskKind<Batch<B>: Send + 'static, Batch<Flex>: Send + 'static>>
        + Clone
        + Send
        + Sync
        + 'static,
    L: MetaLearner<B, T::Kind> + ModuleDisplay + 'static,
    L::InnerModule: ModuleDisplay,
{
    let device = Default::default();
    let train = TaskLoader::<B, _>::training(source.clone(), STEPS, META_BATCH, &device);
    let train = train.checkpoint(checkpoint.unwrap_or(0));
    let model = MetaModel::new(learner, &train).unwrap();
    let validation = Arc::new(TaskLoader::<Flex, _>::validation(source, 9, &device));
    let recording = Recording::default();
    let mut training = SupervisedTraining::new(folder, Arc::new(train), validation)
        .metrics((LossMetric::new(),))
        .metric_valid_numeric(MeanScore::new())
        .renderer(recording.clone())
        .with_application_logger(None)
        .with_file_checkpointer(DefaultRecorder::new())
        .num_epochs(epochs);
    if let Some(epoch) = checkpoint {
        training = training.checkpoint(epoch);
    }
    let trained = training.launch(Trainee::new(model, Adam::new().init(), schedule()));
    (trained.model.into_learner(), recording)
}

/// All parameters and running statistics.
fn numbers<B: Backend, M: Module<B>>(module: &M) -> Vec<f32> {
    struct Numbers(Vec<f32>);
    impl<B: Backend> ModuleVisitor<B> for Numbers {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut found = Numbers(Vec::new());
    module.visit(&mut found);
    found.0
}
