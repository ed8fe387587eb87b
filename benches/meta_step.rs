//! The outer gradient of gradient-based meta-learning on 32 tasks of characters and on 25 sine
//! waves: with lanes and without, by the chain and by the graph of the whole loop.

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use fewshot::adapt::{InnerLoop, SecondOrder};
use fewshot::episode::TaskSource;
use fewshot::learners::AdaptableNetwork;
use fewshot::models::{Conv4, Conv4Config};
use fewshot::precision::LossScale;
use fewshot::prelude::*;

type B = Autodiff<Flex>;

const TASKS: u64 = 32;
const WAVES: u64 = 25;

fn meta_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("meta_step");
    group.sample_size(10).throughput(Throughput::Elements(TASKS));
    let one_shot = Protocol::new(5, 1).with_queries(1);
    let five_shot = Protocol::new(5, 5).with_queries(5);
    for (protocol, steps) in [(one_shot, 1), (one_shot, 5), (five_shot, 1)] {
        let inner = InnerLoop::new(steps, 0.4);
        let name = |method: &str| format!("{method}/{steps} steps {protocol}");
        let maml = Maml::new(network(), inner.clone()).expect("an inner loop");
        step(&mut group, &name("maml"), protocol, &maml);
        step(&mut group, &name("maml without lanes"), protocol, &maml.clone().with_lanes(1));
        let chain = maml.clone().with_second_order(SecondOrder::Chain);
        step(&mut group, &name("maml by the chain"), protocol, &chain);
        let first = Maml::first_order(network(), inner.clone()).expect("an inner loop");
        step(&mut group, &name("fomaml"), protocol, &first);
        let anil = Maml::anil(network(), inner).expect("an inner loop");
        step(&mut group, &name("anil"), protocol, &anil);
    }
    group.finish();
}

/// The network of the MAML paper on Omniglot.
fn network() -> Classifier<B, Conv4<B>> {
    let device = Default::default();
    B::seed(&device, 1);
    let config = Conv4Config::omniglot_strided();
    Classifier::new(config.init(&device), config.features(), 5, &device)
}

fn step(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    protocol: Protocol,
    learner: &Maml<B, Classifier<B, Conv4<B>>>,
) {
    let glyphs = Glyphs::generate(&GlyphsConfig::default()).train;
    let sampler = glyphs.sampler(protocol, 1).expect("the protocol fits the images");
    gradient(group, name, &sampler, TASKS, learner);
}

fn sinusoids(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("meta_step_sinusoid");
    group.throughput(Throughput::Elements(WAVES));
    let sampler = RegressionSampler::new(Sinusoids::default(), 10, 10, 1).expect("tasks");
    let device = Default::default();
    B::seed(&device, 1);
    let network = MlpConfig::new(1).with_layers(vec![40, 40, 1]).init::<B>(&device);
    for steps in [1, 5] {
        let inner = InnerLoop::new(steps, 0.01);
        let maml = Maml::new(network.clone(), inner.clone()).expect("an inner loop");
        let without_lanes = maml.clone().with_lanes(1);
        let chain = maml.clone().with_second_order(SecondOrder::Chain);
        let first = Maml::first_order(network.clone(), inner).expect("an inner loop");
        let learners = [
            ("maml", maml),
            ("maml without lanes", without_lanes),
            ("maml by the chain", chain),
            ("fomaml", first),
        ];
        for (method, learner) in learners {
            gradient(&mut group, &format!("{method}/{steps} steps"), &sampler, WAVES, &learner);
        }
    }
    group.finish();
}

fn gradient<T: TaskSource, N>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    source: &T,
    tasks: u64,
    learner: &Maml<B, N>,
) where
    N: AdaptableNetwork<B, Kind = T::Kind>,
    Maml<B, N>: MetaLearner<B, T::Kind>,
{
    let device = Default::default();
    let batch = source.tasks::<B>(0..tasks, &device).unwrap();
    group.bench_function(format!("flex/{name}"), |bencher| {
        bencher.iter(|| {
            let found = learner.meta_gradients(&batch, LossScale::ONE);
            B::sync(&device).expect("the device answers");
            found
        });
    });
}

criterion_group!(benches, meta_step, sinusoids);
criterion_main!(benches);
