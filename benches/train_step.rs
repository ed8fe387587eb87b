//! One whole training step of a prototypical network: episode, forward, backward, Adam.

use burn::backend::{Autodiff, Flex};
use burn::optim::{AdamConfig, Optimizer};
use burn::tensor::backend::Backend;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fewshot::learners::MetaGradients;
use fewshot::prelude::*;

type B = Autodiff<Flex>;

fn train_step(criterion: &mut Criterion) {
    let device = Default::default();
    B::seed(&device, 1);
    let train = Glyphs::generate(&GlyphsConfig::default()).train;
    let mut group = criterion.benchmark_group("train_step");
    group.sample_size(10);
    for protocol in [
        Protocol::new(5, 5).with_queries(15),
        Protocol::new(20, 1).with_queries(5),
        Protocol::new(60, 1).with_queries(5),
    ] {
        let sampler = train.sampler(protocol, 1).expect("the protocol fits glyphs");
        let learner = ProtoNet::<B, _>::new(Conv4Config::omniglot().init(&device));
        let mut optimizer = AdamConfig::new().init();
        let mut index = 0;
        group.bench_function(format!("flex/{protocol}"), |bencher| {
            bencher.iter_batched(
                || learner.clone(),
                |learner| {
                    index += 1;
                    let batch = sampler.batch::<B>([index], &device);
                    let MetaGradients { gradients, .. } = learner.meta_gradients(&batch);
                    let stepped = optimizer.step(1e-3, learner, gradients);
                    B::sync(&device).expect("the device answers");
                    stepped
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, train_step);
criterion_main!(benches);
