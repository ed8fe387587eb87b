//! Prototypes, scores and the prototypical loss, at sizes from 5-way 1-shot to a whole data set.

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use fewshot::kernels::{self, Metric};

use super::case::{Case, Load, Pass, Scale};

/// Ways, shots, queries, features.
const SIZES: [[usize; 4]; 5] =
    [[5, 1, 75, 64], [5, 5, 75, 1600], [20, 5, 300, 64], [60, 5, 300, 64], [100, 20, 4096, 512]];

struct Episode<B: AutodiffBackend> {
    support: Tensor<B, 3>,
    queries: Tensor<B, 3>,
    embeddings: Tensor<B, 3>,
    support_labels: Tensor<B, 2, Int>,
    query_labels: Tensor<B, 2, Int>,
    ways: usize,
}

impl<B: AutodiffBackend> Episode<B> {
    fn new([ways, shots, queries, features]: [usize; 4], device: &B::Device) -> Self {
        let normal = |count: usize| {
            let shape = [1, count, features];
            Tensor::random(shape, Distribution::Normal(0.0, 1.0), device).require_grad()
        };
        let labels = |count: usize| {
            let labels: Vec<i64> = (0..count).map(|i| (i % ways) as i64).collect();
            Tensor::from_data(TensorData::new(labels, [1, count]), device)
        };
        let (support, of_queries) = (normal(ways * shots), normal(queries));
        let both = vec![support.clone(), of_queries.clone()];
        Self {
            support,
            queries: of_queries,
            embeddings: Tensor::cat(both, 1).detach().require_grad(),
            support_labels: labels(ways * shots),
            query_labels: labels(queries),
            ways,
        }
    }

    fn prototypes(&self) -> Tensor<B, 3> {
        kernels::prototypes(self.support.clone(), self.support_labels.clone(), self.ways)
    }
}

/// A case for each size: `work` on an episode and its prototypes, forward and backward.
fn cases<B: AutodiffBackend>(
    scale: Scale,
    names: [&'static str; 2],
    load: fn([usize; 4]) -> Load,
    device: &B::Device,
    work: impl Fn(&Episode<B>, &Tensor<B, 3>) -> Tensor<B, 1> + Copy + 'static,
) -> Vec<Case> {
    let case = |sizes: [usize; 4]| {
        let [ways, shots, queries, features] = sizes;
        let shape = format!("{ways}x{shots} q{queries} d{features}");
        let make = move |device: &B::Device| {
            let episode = Episode::<B>::new(sizes, device);
            let means = episode.prototypes().detach().require_grad();
            (episode, means)
        };
        let of = (Pass::ForwardBackward, load(sizes));
        Case::new::<B, _>(names, shape, of, device, make, move |(episode, means)| {
            let _gradients = work(episode, means).backward();
        })
    };
    scale.choose(SIZES.to_vec(), vec![[3, 2, 5, 7]]).into_iter().map(case).collect()
}

/// Two operations a product of the scores; forward, and for the gradients of queries and prototypes.
fn products([ways, _, queries, features]: [usize; 4]) -> Load {
    let values = (queries + ways) * features + queries * ways;
    Load::products((3 * 2 * queries * ways * features) as f64, 3 * values)
}

pub(super) fn prototypes<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    // Support and prototypes; forward, and backward from the gradient of the sum.
    let load =
        |[ways, shots, _, features]: [usize; 4]| Load::floats(2 * ways * features * (shots + 1));
    cases::<B>(scale, ["prototypes", ""], load, device, |episode, _| episode.prototypes().sum())
}

pub(super) fn scores<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let metrics = [("euclidean", Metric::SquaredEuclidean), ("cosine", Metric::Cosine)];
    let of = metrics.map(|(variant, metric)| {
        cases::<B>(scale, ["scores", variant], products, device, move |episode, means| {
            kernels::scores(episode.queries.clone(), means.clone(), metric).sum()
        })
    });
    of.into_iter().flatten().collect()
}

pub(super) fn proto_loss<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    cases::<B>(scale, ["proto_loss", "euclidean"], products, device, |episode, _| {
        let (queries, labels) = (episode.queries.clone(), episode.query_labels.clone());
        let metric = Metric::SquaredEuclidean;
        kernels::proto_loss(queries, episode.prototypes(), labels, metric, 1.0).loss
    })
}

pub(super) fn episode_proto_loss<B: AutodiffBackend>(
    scale: Scale,
    device: &B::Device,
) -> Vec<Case> {
    cases::<B>(scale, ["episode_proto_loss", "euclidean"], products, device, |episode, _| {
        let labels = [&episode.support_labels, &episode.query_labels].map(Tensor::clone);
        let (embeddings, metric) = (episode.embeddings.clone(), Metric::SquaredEuclidean);
        kernels::episode_proto_loss(embeddings, labels, episode.ways, metric, 1.0).loss
    })
}
