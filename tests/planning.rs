//! Predictions of memory, against a counting allocator.
#![cfg(feature = "flex")]
#![recursion_limit = "256"]

#[path = "planning/backbones.rs"]
mod backbones;

use burn::backend::{Autodiff, Flex};
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig};
use burn::optim::Optimizer;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use fewshot::adapt::SecondOrder;
use fewshot::data::GlyphsConfig;
use fewshot::episode::TaskSource;
use fewshot::hardware::{Bytes, CountingAllocator, SearchBudget};
use fewshot::models::{Conv4, Mlp};
use fewshot::precision::LossScale;
use fewshot::prelude::*;
use fewshot::train::{find_meta_batch, fit_meta_batch};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

type B = Autodiff<Flex>;
type Net = ProtoNet<B, Conv4<B>>;
type Shots = Maml<B, Classifier<B, Conv4<B>>>;
type Waves = Maml<B, Mlp<B>>;

fn episodes() -> EpisodeSampler {
    let config = GlyphsConfig {
        train_alphabets: 2,
        validation_alphabets: 1,
        test_alphabets: 1,
        characters: 8,
        drawers: 6,
        ..GlyphsConfig::default()
    };
    let protocol = Protocol::new(5, 1).with_queries(3);
    Glyphs::generate(&config).train.sampler(protocol, 1).unwrap()
}

fn waves() -> RegressionSampler {
    RegressionSampler::new(Sinusoids::default(), 10, 10, 1).unwrap()
}

fn proto_net(config: &Conv4Config) -> Net {
    B::seed(&Default::default(), 3);
    ProtoNet::new(config.init(&Default::default()))
}

fn maml(steps: usize, route: SecondOrder) -> Shots {
    let device = Default::default();
    B::seed(&device, 3);
    let config = Conv4Config::omniglot_strided();
    let network = Classifier::new(config.init(&device), config.features(), 5, &device);
    Maml::new(network, InnerLoop::new(steps, 0.4)).unwrap().with_second_order(route).with_lanes(16)
}

fn regression(steps: usize, route: SecondOrder) -> Waves {
    B::seed(&Default::default(), 3);
    let network = MlpConfig::new(1).with_layers(vec![40, 40, 1]).init(&Default::default());
    Maml::new(network, InnerLoop::new(steps, 0.01)).unwrap().with_second_order(route)
}

/// What a meta-batch takes.
fn measured<L, T>(learner: &L, source: &T, tasks: usize) -> u64
where
    L: MetaLearner<B, T::Kind>,
    T: TaskSource,
{
    let optimizer = Adam::new().init::<B, L>();
    let (all, sizes) = (Bytes(u64::MAX), tasks..=tasks);
    find_meta_batch(learner, &optimizer, source, &Default::default(), all, sizes).unwrap().peak.0
}

/// Fits at `sizes`, and checks the prediction at others.
fn is_predicted<L, T>(name: &str, learner: &L, source: &T, sizes: [usize; 3], others: &[usize])
where
    L: MetaLearner<B, T::Kind>,
    T: TaskSource,
{
    let optimizer = Adam::new().init::<B, L>();
    let fit = fit_meta_batch(learner, &optimizer, source, &Default::default(), sizes).unwrap();
    for &tasks in others {
        assert!(!sizes.contains(&tasks));
        let (said, found) = (fit.at(tasks), Bytes(measured(learner, source, tasks)));
        let off = 100.0 * (said.bytes.0 as f64 - found.0 as f64) / found.0 as f64;
        println!("{name}, {tasks} tasks: {said}, found {found}: {off:+.1} %");
        assert!(off.abs() < 15.0, "{name}, {tasks} tasks: {said}, found {found}");
    }
}

#[test]
fn prototypical_training_takes_what_is_predicted() {
    for (name, config) in
        [("pooled", Conv4Config::omniglot()), ("strided", Conv4Config::omniglot_strided())]
    {
        is_predicted(name, &proto_net(&config), &episodes(), [2, 4, 6], &[3, 9, 12]);
    }
}

#[test]
fn maml_takes_what_is_predicted() {
    for (route, steps) in
        [(SecondOrder::Chain, 1), (SecondOrder::Chain, 5), (SecondOrder::Unrolled, 5)]
    {
        let name = format!("{route:?} of {steps}");
        is_predicted(&name, &maml(steps, route), &episodes(), [2, 4, 6], &[3, 8, 10]);
    }
}

#[test]
fn regression_takes_what_is_predicted() {
    for (route, steps) in
        [(SecondOrder::Chain, 1), (SecondOrder::Chain, 5), (SecondOrder::Unrolled, 5)]
    {
        let name = format!("waves, {route:?} of {steps}");
        is_predicted(&name, &regression(steps, route), &waves(), [8, 16, 24], &[12, 32, 60]);
    }
}

/// That the largest meta-batch is found for a budget between what `tasks` take and one more.
fn is_found<L, T>(learner: &L, source: &T, tasks: usize)
where
    L: MetaLearner<B, T::Kind>,
    T: TaskSource,
{
    let optimizer = Adam::new().init::<B, L>();
    let (fits, too_big) = (measured(learner, source, tasks), measured(learner, source, tasks + 1));
    assert!(fits < too_big);
    let budget = Bytes(fits + (too_big - fits) / 2);
    let device = Default::default();
    let budget = SearchBudget { bytes: budget, keep_free: 0.0 };
    let found = find_meta_batch(learner, &optimizer, source, &device, budget, 1..=64).unwrap();
    println!("{found:?}");
    assert_eq!(found.chosen, tasks, "{found:?}");
    let peak = |size| found.trials.iter().find(|trial| trial.size == size).unwrap().peak;
    assert_eq!(peak(tasks), Some(found.peak));
    assert!(peak(tasks + 1) > Some(budget.bytes));
}

#[test]
fn the_largest_meta_batch_is_found() {
    is_found(&proto_net(&Conv4Config::omniglot_strided()), &episodes(), 9);
    is_found(&maml(2, SecondOrder::Chain), &episodes(), 5);
    // A task takes so little that it matters how many threads have working memory at a time.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    alone.install(|| is_found(&regression(3, SecondOrder::Unrolled), &waves(), 21));
}

struct Values(Vec<Vec<f32>>);

impl<B: Backend> ModuleVisitor<B> for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(param.val().into_data().into_vec().unwrap());
    }
}

fn bits<M: Module<B>>(module: &M) -> Vec<u32> {
    let mut values = Values(Vec::new());
    module.visit(&mut values);
    values.0.into_iter().flatten().map(f32::to_bits).collect()
}

#[test]
fn a_search_leaves_learner_optimizer_and_random_numbers_as_they_are() {
    let (source, device) = (episodes(), Default::default());
    let mut learner = proto_net(&Conv4Config::omniglot_strided());
    let mut optimizer = Adam::new().init::<B, Net>();
    let batch = source.tasks::<B>(0..1, &device).unwrap();
    let gradients = learner.meta_gradients(&batch, LossScale::ONE).gradients;
    learner = optimizer.step(0.01, learner, gradients.into_parts().0);
    let record = || {
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
        let record = Optimizer::<Net, B>::to_record(&optimizer);
        let mut bytes: Vec<u8> = Recorder::<B>::record(&recorder, record, ()).unwrap();
        // The parameters are in a map without order.
        bytes.sort_unstable();
        bytes
    };
    let draw = || Tensor::<B, 1>::random([8], Distribution::Default, &device).into_data();
    let (values, moments) = (bits(&learner), record());
    B::seed(&device, 5);
    let wanted = draw();
    B::seed(&device, 5);
    let budget = Bytes(measured(&learner, &source, 4));
    find_meta_batch(&learner, &optimizer, &source, &device, budget, 1..=8).unwrap();
    draw().assert_eq(&wanted, true);
    assert_eq!(bits(&learner), values);
    assert_eq!(record(), moments);
}

/// With Burn's own norm, whose running averages all copies share.
#[derive(Module, Debug)]
struct Normalised<B: Backend> {
    norm: BatchNorm<B>,
}

impl<B: Backend> Encoder<B> for Normalised<B> {
    fn encode(&self, images: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 2> {
        self.norm.forward(images).flatten(1, 3)
    }

    fn architecture(&self) -> String {
        "normalised(784 features)".to_owned()
    }
}

#[test]
fn a_search_leaves_running_averages_that_copies_share_as_they_are() {
    let (source, device) = (episodes(), Default::default());
    let norm = BatchNormConfig::new(1).init::<B>(&device);
    let learner = ProtoNet::<B, _>::new(Normalised { norm });
    let optimizer = Adam::new().init::<B, _>();
    let averages = || {
        // What is to be averaged yet counts too.
        drop(learner.clone().into_record());
        bits(&learner)
    };
    let wanted = averages();
    find_meta_batch(&learner, &optimizer, &source, &device, Bytes(u64::MAX), 2..=2).unwrap();
    assert_eq!(averages(), wanted);
    learner.meta_gradients(&source.tasks::<B>(0..2, &device).unwrap(), LossScale::ONE);
    assert!(averages() != wanted, "a step moves them");
}

/// With dropout, which draws random numbers of the backend.
#[derive(Module, Debug)]
struct Noisy<B: Backend> {
    norm: BatchNorm<B>,
    dropout: Dropout,
}

impl<B: Backend> Encoder<B> for Noisy<B> {
    fn encode(&self, images: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 2> {
        self.dropout.forward(self.norm.forward(images)).flatten(1, 3)
    }

    fn architecture(&self) -> String {
        "noisy(784 features)".to_owned()
    }
}

#[test]
fn what_is_drawn_after_a_search_does_not_depend_on_its_trials() {
    let (source, device) = (episodes(), Default::default());
    let norm = BatchNormConfig::new(1).init::<B>(&device);
    let dropout = DropoutConfig::new(0.5).init();
    let learner = ProtoNet::<B, _>::new(Noisy { norm, dropout });
    let optimizer = Adam::new().init::<B, _>();
    let check = |tasks| {
        let (all, sizes) = (Bytes(u64::MAX), tasks..=tasks);
        find_meta_batch(&learner, &optimizer, &source, &device, all, sizes).unwrap()
    };
    let drawn = || Tensor::<B, 1>::random([8], Distribution::Default, &device).into_data();
    let after = |seed, tasks| {
        B::seed(&device, seed);
        check(tasks);
        drawn()
    };
    let one = after(5, 1);
    assert_eq!(after(5, 1), one);
    assert_eq!(after(5, 4), one);
    assert_ne!(after(6, 1), one);
    B::seed(&device, 5);
    learner.meta_gradients(&source.tasks::<B>(0..1, &device).unwrap(), LossScale::ONE);
    let [moved, again] = [drawn(), after(5, 1)];
    assert!(moved != again && again == one, "a step draws");
}

#[cfg(feature = "wgpu")]
#[test]
fn training_on_wgpu_takes_what_is_predicted() {
    training_on_a_device_takes_what_is_predicted::<Autodiff<burn::backend::Wgpu>>();
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn training_on_cuda_takes_what_is_predicted() {
    training_on_a_device_takes_what_is_predicted::<Autodiff<burn::backend::Cuda>>();
}

/// The peaks of a device are samples, so steps must be long enough to be seen.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn training_on_a_device_takes_what_is_predicted<G: burn::tensor::backend::AutodiffBackend>() {
    let device = Default::default();
    let config = Conv4Config::omniglot().with_channels(16).with_blocks(3);
    let learner: ProtoNet<G, _> = ProtoNet::new(config.init(&device));
    let optimizer = Adam::new().init::<G, _>();
    let fit = |sizes| fit_meta_batch(&learner, &optimizer, &episodes(), &device, sizes).unwrap();
    let (all, source) = (Bytes(u64::MAX), episodes());
    let fit = fit([8, 12, 16]);
    let found = find_meta_batch(&learner, &optimizer, &source, &device, all, 32..=32).unwrap().peak;
    let said = fit.at(32);
    let off = 100.0 * (said.bytes.0 as f64 - found.0 as f64) / found.0 as f64;
    println!("{}, 32 tasks: {said}, found {found}: {off:+.1} %", G::name(&device));
    assert!(off.abs() < 15.0, "{said}, found {found}");
}
