//! Sampling and gathering episodes, beside the training step that they feed (`fewshot bench kernels --only training_step`).

use burn::backend::Flex;
use burn::tensor::backend::Backend;
use criterion::{Criterion, criterion_group, criterion_main};
use fewshot::prelude::*;

fn episodes(criterion: &mut Criterion) {
    let device = Default::default();
    let train = Glyphs::generate(&GlyphsConfig::default()).train;
    let turned = train.with_rotations(Rotations::AsClasses).expect("glyphs are square");
    let protocols = [
        Protocol::new(5, 1).with_queries(15),
        Protocol::new(20, 1).with_queries(5),
        Protocol::new(60, 1).with_queries(5),
    ];
    let mut group = criterion.benchmark_group("episodes");
    for protocol in protocols {
        let sampler = turned.sampler(protocol, 1).expect("the protocol fits glyphs");
        let mut index = 0;
        group.bench_function(format!("sample/{protocol}"), |bencher| {
            bencher.iter(|| {
                index += 1;
                sampler.episode(index)
            });
        });
        group.bench_function(format!("batch/flex/{protocol}"), |bencher| {
            bencher.iter(|| {
                index += 1;
                let batch = sampler.batch::<Flex>([index], &device);
                Flex::sync(&device).expect("the device answers");
                batch
            });
        });
    }
    group.finish();
}

criterion_group!(benches, episodes);
criterion_main!(benches);
