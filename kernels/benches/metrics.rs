//! Prototypes, scores and the prototypical loss, fused beside their references.

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use criterion::{Criterion, criterion_group, criterion_main};
use fewshot_kernels::{Metric, proto_loss, prototypes, scores, with_reference};

type B = Autodiff<Flex>;

/// Ways, shots, queries, features.
const SIZES: [[usize; 4]; 5] =
    [[5, 1, 75, 64], [5, 5, 75, 1600], [20, 5, 300, 64], [60, 5, 300, 64], [100, 20, 4096, 512]];

struct Episode<B: Backend> {
    support: Tensor<B, 3>,
    queries: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    query_labels: Tensor<B, 2, Int>,
    ways: usize,
}

impl<B: Backend> Episode<B> {
    fn new([ways, shots, queries, features]: [usize; 4]) -> Self {
        let device = Default::default();
        let labels = |count: usize| {
            let labels: Vec<i64> = (0..count).map(|i| (i % ways) as i64).collect();
            Tensor::from_data(TensorData::new(labels, [1, count]), &device)
        };
        let normal =
            |count| Tensor::random([1, count, features], Distribution::Normal(0.0, 1.0), &device);
        Self {
            support: normal(ways * shots),
            queries: normal(queries),
            labels: labels(ways * shots),
            query_labels: labels(queries),
            ways,
        }
    }

    fn loss(&self) -> Tensor<B, 1> {
        let prototypes = prototypes(self.support.clone(), self.labels.clone(), self.ways);
        let labels = self.query_labels.clone();
        proto_loss(self.queries.clone(), prototypes, labels, Metric::SquaredEuclidean, 1.0).loss
    }
}

fn beside<O>(criterion: &mut Criterion, operation: &str, size: &str, work: impl Fn() -> O) {
    let mut group = criterion.benchmark_group(operation);
    group.bench_function(format!("flex/fused/{size}"), |bencher| bencher.iter(&work));
    group.bench_function(format!("flex/reference/{size}"), |bencher| {
        bencher.iter(|| with_reference(&work));
    });
    group.finish();
}

fn metrics(criterion: &mut Criterion) {
    B::seed(&Default::default(), 1);
    for size in SIZES {
        let [ways, shots, queries, features] = size;
        let name = format!("{ways}x{shots} q{queries} d{features}");
        let episode = Episode::<Flex>::new(size);
        beside(criterion, "proto_loss/forward", &name, || episode.loss().into_data());
        let mut tracked = Episode::<B>::new(size);
        tracked.support = tracked.support.require_grad();
        tracked.queries = tracked.queries.require_grad();
        beside(criterion, "proto_loss/forward_backward", &name, || tracked.loss().backward());
        let means = prototypes(episode.support.clone(), episode.labels.clone(), ways);
        for metric in [Metric::SquaredEuclidean, Metric::Cosine] {
            beside(criterion, &format!("scores/{metric}"), &name, || {
                scores(episode.queries.clone(), means.clone(), metric)
            });
        }
    }
}

criterion_group!(benches, metrics);
criterion_main!(benches);
