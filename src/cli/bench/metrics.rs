//! Prototypes, scores and the prototypical loss, at sizes from 5-way 1-shot to a whole data set.

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use fewshot::kernels::{self, Metric};

use super::case::{Case, Load, Pass, Reference, Scale};

/// Ways, shots, queries, features.
const SIZES: [[usize; 4]; 5] =
    [[5, 1, 75, 64], [5, 5, 75, 1600], [20, 5, 300, 64], [60, 5, 300, 64], [100, 20, 4096, 512]];

#[derive(Clone)]
struct Episode<B: AutodiffBackend> {
    support: Tensor<B, 3>,
    queries: Tensor<B, 3>,
    support_labels: Tensor<B, 2, Int>,
    query_labels: Tensor<B, 2, Int>,
    sizes: [usize; 4],
}

impl<B: AutodiffBackend> Episode<B> {
    fn new(sizes: [usize; 4], device: &B::Device) -> Self {
        let [ways, shots, queries, features] = sizes;
        B::seed(device, 1);
        let normal = |count: usize| {
            let shape = [1, count, features];
            Tensor::random(shape, Distribution::Normal(0.0, 1.0), device).require_grad()
        };
        let labels = |count: usize| {
            let labels: Vec<i64> = (0..count).map(|i| (i % ways) as i64).collect();
            Tensor::from_data(TensorData::new(labels, [1, count]), device)
        };
        Self {
            support: normal(ways * shots),
            queries: normal(queries),
            support_labels: labels(ways * shots),
            query_labels: labels(queries),
            sizes,
        }
    }

    fn prototypes(&self) -> Tensor<B, 3> {
        kernels::prototypes(self.support.clone(), self.support_labels.clone(), self.sizes[0])
    }

    /// Floats of the support and of the prototypes, and multiplications of the scores.
    fn amounts(&self) -> [f64; 3] {
        let [ways, shots, queries, features] = self.sizes;
        [ways * shots * features, ways * features, queries * ways * features].map(|n| n as f64)
    }

    /// A case that differentiates what `work` returns.
    fn case(
        self,
        operation: &'static str,
        variant: &'static str,
        load: Load,
        work: impl Fn(&Self) -> Tensor<B, 1> + 'static,
    ) -> Case {
        let [ways, shots, queries, features] = self.sizes;
        Case {
            operation,
            shape: format!("{ways}x{shots} q{queries} d{features}"),
            variant,
            pass: Pass::ForwardBackward,
            load,
            reference: Reference::Beside,
            work: Box::new(move || {
                let _gradients = work(&self).backward();
                B::sync(&self.queries.device()).expect("the device answers");
            }),
        }
    }
}

fn sizes(scale: Scale) -> Vec<[usize; 4]> {
    scale.choose(SIZES.to_vec(), vec![[3, 2, 5, 7]])
}

pub(super) fn prototypes<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let case = |sizes| {
        let episode = Episode::<B>::new(sizes, device);
        let [support, means, _] = episode.amounts();
        // Forward, and backward from the gradient of the sum.
        let load = Load::Bytes(4.0 * 2.0 * (support + means));
        episode.case("prototypes", "", load, |episode| episode.prototypes().sum())
    };
    sizes(scale).into_iter().map(case).collect()
}

pub(super) fn scores<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let metrics = [("euclidean", Metric::SquaredEuclidean), ("cosine", Metric::Cosine)];
    let case = |(variant, metric): (&'static str, Metric), sizes| {
        let episode = Episode::<B>::new(sizes, device);
        let means = episode.prototypes().detach().require_grad();
        // Two operations a product; forward, and for the gradients of queries and prototypes.
        let load = Load::Flops(3.0 * 2.0 * episode.amounts()[2]);
        episode.case("scores", variant, load, move |episode| {
            kernels::scores(episode.queries.clone(), means.clone(), metric).sum()
        })
    };
    let all = sizes(scale).into_iter().flat_map(|sizes| metrics.map(|metric| (metric, sizes)));
    all.map(|(metric, sizes)| case(metric, sizes)).collect()
}

pub(super) fn proto_loss<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let case = |sizes| {
        let episode = Episode::<B>::new(sizes, device);
        let load = Load::Flops(3.0 * 2.0 * episode.amounts()[2]);
        episode.case("proto_loss", "euclidean", load, |episode| {
            let (queries, labels) = (episode.queries.clone(), episode.query_labels.clone());
            let metric = Metric::SquaredEuclidean;
            kernels::proto_loss(queries, episode.prototypes(), labels, metric, 1.0).loss
        })
    };
    sizes(scale).into_iter().map(case).collect()
}
