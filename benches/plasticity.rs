//! A plastic hierarchy of 100-200-400-800 with periods 1, 2 and 4: tick after tick with each rule,
//! without learning, 64 sequences at once, and whole sequences; beside it what one thread takes to
//! stream its weights.

use std::hint::black_box;

use burn::backend::Flex;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use fewshot::plasticity::{
    Bcm, Hebb, HierarchyConfig, Oja, PlasticityRule, Rate, Sanger, Sources, Subspace,
    TemporalHierarchy,
};

type B = Flex;

const TICKS: usize = 100;
const LEVELS: [usize; 4] = [100, 200, 400, 800];
const PERIODS: [usize; 3] = [1, 2, 4];

fn hierarchy() -> TemporalHierarchy<B> {
    let device = Default::default();
    B::seed(&device, 1);
    let config = HierarchyConfig::new(LEVELS.to_vec(), PERIODS.to_vec());
    config.init(&device).expect("sizes and periods that fit")
}

fn inputs(batch: usize) -> Tensor<B, 3> {
    let sources = Sources::new(100, 20, 1).expect("sources");
    sources.stream(batch).next(TICKS, &Default::default())
}

fn ticks<R: PlasticityRule<B> + Send>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    rule: R,
    rate: f64,
    batch: usize,
) {
    let running =
        hierarchy().start(rule, Rate::fixed(rate).expect("a rate")).with_relative_rates(100.0);
    let begun = running.and_then(|running| running.learn(inputs(batch))).expect("inputs that fit");
    let xs = inputs(batch);
    group.bench_function(format!("flex/{name}/{batch}"), |bencher| {
        bencher.iter(|| {
            let (running, xs) = (begun.clone(), xs.clone());
            let done = rayon::scope(|_| running.learn(xs)).expect("inputs that fit");
            B::sync(&Default::default()).expect("the device answers");
            done
        });
    });
}

fn whole(group: &mut BenchmarkGroup<'_, WallTime>, batch: usize) {
    let (hierarchy, xs) = (hierarchy(), inputs(batch));
    group.bench_function(format!("flex/whole sequences/{batch}"), |bencher| {
        bencher.iter(|| hierarchy.forward(xs.clone()).expect("inputs that fit"));
    });
}

/// The weights read once a firing, as products with an input do, and as often written where it
/// learns: what a step takes if nothing but memory does.
fn memory(group: &mut BenchmarkGroup<'_, WallTime>) {
    for (name, learns) in [("read", false), ("read, read and written", true)] {
        let mut weights = LEVELS.windows(2).map(|pair| vec![0.5; pair[0] * pair[1]]);
        let mut weights: [Vec<f32>; 3] = std::array::from_fn(|_| weights.next().expect("three"));
        group.bench_function(format!("memory/{name}"), |bencher| {
            bencher.iter(|| {
                for tick in 0..TICKS {
                    let layers = weights.iter_mut().zip(PERIODS);
                    for (weight, _) in layers.filter(|(_, period)| tick.is_multiple_of(*period)) {
                        black_box(read(weight));
                        if learns {
                            black_box(weight).iter_mut().for_each(|w| *w = *w * 0.5 + 0.25);
                        }
                    }
                }
            });
        });
    }
}

fn read(weight: &[f32]) -> [f32; 32] {
    weight.chunks_exact(32).fold([0.0; 32], |mut sums, chunk| {
        sums.iter_mut().zip(chunk).for_each(|(sum, w)| *sum += w);
        sums
    })
}

fn plasticity(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plasticity");
    group.sample_size(10).throughput(Throughput::Elements(TICKS as u64));
    memory(&mut group);
    for batch in [1, 64] {
        ticks(&mut group, "no learning", Hebb::new(), 0.0, batch);
        ticks(&mut group, "hebb", Hebb::new(), 1e-4, batch);
        ticks(&mut group, "oja", Oja, 0.1, batch);
        ticks(&mut group, "subspace", Subspace, 0.1, batch);
        ticks(&mut group, "sanger", Sanger, 0.1, batch);
        ticks(&mut group, "bcm", Bcm::new(100.0).expect("a time constant"), 1e-3, batch);
        whole(&mut group, batch);
    }
    group.finish();
}

criterion_group!(benches, plasticity);
criterion_main!(benches);
