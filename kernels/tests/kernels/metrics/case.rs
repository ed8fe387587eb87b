//! An episode on the host, from which every backend makes its tensors.

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use fewshot_kernels::{Metric, episode_proto_loss, proto_loss, prototypes, scores};

pub const METRICS: [Metric; 2] = [Metric::SquaredEuclidean, Metric::Cosine];

/// Sizes of an episode and what is made of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub tasks: usize,
    pub ways: usize,
    pub shots: usize,
    pub queries: usize,
    pub features: usize,
    pub metric: Metric,
    pub scale: f64,
    pub permuted: bool,
    /// What leaves are rounded to, on their way into the operations.
    pub low: Option<FloatDType>,
}

/// The support and the queries, as they are stored.
pub type Leaves<B> = [Tensor<B, 3>; 2];

/// A number of every output, and gradients by support and queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub output: Vec<f32>,
    pub gradients: [Vec<f32>; 2],
}

/// Numbers between -1 and 1, the same on every platform.
pub fn numbers(len: usize, mut state: u64) -> Vec<f32> {
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len + 8).map(|_| draw()).skip(8).collect()
}

pub fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().into_vec().unwrap()
}

pub fn labels<B: Backend>(tasks: usize, count: usize, ways: usize) -> Tensor<B, 2, Int> {
    let labels: Vec<i64> =
        (0..tasks * count).map(|i| ((i % count + i / count) % ways) as i64).collect();
    Tensor::from_data(TensorData::new(labels, [tasks, count]), &Default::default())
}

impl Case {
    pub fn new(sizes: [usize; 5], metric: Metric) -> Self {
        let [tasks, ways, shots, queries, features] = sizes;
        Self {
            tasks,
            ways,
            shots,
            queries,
            features,
            metric,
            scale: 1.5,
            permuted: false,
            low: None,
        }
    }

    pub fn values(&self) -> [Vec<f32>; 2] {
        let each = self.tasks * self.features;
        [numbers(each * self.ways * self.shots, 3), numbers(each * self.queries, 4)]
    }

    pub fn leaves<B: Backend>(&self, values: &[Vec<f32>; 2]) -> Leaves<B> {
        let counts = [self.ways * self.shots, self.queries];
        [0, 1].map(|i| {
            let mut shape = [self.tasks, counts[i], self.features];
            if self.permuted {
                shape.swap(0, 2);
            }
            Tensor::from_data(TensorData::new(values[i].clone(), shape), &Default::default())
        })
    }

    fn views<B: Backend>(&self, leaves: &Leaves<B>) -> Leaves<B> {
        let of = self.low.unwrap_or(FloatDType::F32);
        let leaves = leaves.clone().map(|leaf| leaf.cast(of));
        leaves.map(|leaf| if self.permuted { leaf.swap_dims(0, 2) } else { leaf })
    }

    /// The loss and a weighted sum of the scores, each `[1]`.
    pub fn forward<B: Backend>(&self, leaves: &Leaves<B>) -> [Tensor<B, 1>; 2] {
        let [support, queries] = self.views(leaves);
        let of_support = labels(self.tasks, self.ways * self.shots, self.ways);
        let means = prototypes(support, of_support, self.ways);
        let of_queries = labels(self.tasks, self.queries, self.ways);
        let found = scores(queries.clone(), means.clone(), self.metric);
        let weights: Tensor<B, 3> = direction(found.dims(), 5);
        let loss = proto_loss(queries, means, of_queries, self.metric, self.scale).loss;
        [loss.cast(FloatDType::F32), (found.cast(FloatDType::F32) * weights).sum()]
    }

    /// Loss and scores, and the gradients of both.
    pub fn first<B: AutodiffBackend>(&self, values: &[Vec<f32>; 2]) -> [Outcome; 2] {
        [0, 1].map(|which| {
            let leaves = self.leaves::<B>(values).map(Tensor::require_grad);
            let output = self.forward(&leaves)[which].clone();
            let found = output.backward();
            let gradients = leaves.map(|leaf| read(leaf.grad(&found).expect("it was tracked")));
            Outcome { output: read(output), gradients }
        })
    }

    /// The loss by the joint operation, the gradients by support and queries, and the accuracy.
    pub fn of_episode<B: AutodiffBackend>(&self, values: &[Vec<f32>; 2]) -> (Outcome, f32) {
        let leaves = self.leaves::<B>(values).map(Tensor::require_grad);
        let (loss, accuracy) = self.episode_loss(&leaves);
        let found = loss.backward();
        let gradients = leaves.map(|leaf| read(leaf.grad(&found).expect("it was tracked")));
        (Outcome { output: read(loss), gradients }, read(accuracy)[0])
    }

    fn episode_loss<B: Backend>(&self, leaves: &Leaves<B>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        let embeddings = Tensor::cat(self.views(leaves).into(), 1);
        let counts = [self.ways * self.shots, self.queries];
        let labels = counts.map(|count| labels(self.tasks, count, self.ways));
        let found = episode_proto_loss(embeddings, labels, self.ways, self.metric, self.scale);
        (found.loss.cast(FloatDType::F32), found.accuracy.cast(FloatDType::F32))
    }

    /// A weighted sum of the gradients of the joint loss, and its gradients.
    pub fn second_of_episode<B: AutodiffBackend>(&self, values: &[Vec<f32>; 2]) -> Outcome {
        self.second_of::<B>(values, |lifted| self.episode_loss(lifted).0)
    }

    /// A weighted sum of the first gradients, and its gradients.
    pub fn second<B: AutodiffBackend>(&self, values: &[Vec<f32>; 2]) -> [Outcome; 2] {
        [0, 1]
            .map(|which| self.second_of::<B>(values, |lifted| self.forward(lifted)[which].clone()))
    }

    fn second_of<B: AutodiffBackend>(
        &self,
        values: &[Vec<f32>; 2],
        forward: impl Fn(&Leaves<Autodiff<B>>) -> Tensor<Autodiff<B>, 1>,
    ) -> Outcome {
        let inner = self.leaves::<B>(values).map(Tensor::require_grad);
        let lifted = inner
            .each_ref()
            .map(|leaf| Tensor::<Autodiff<B>, 3>::from_inner(leaf.clone()).require_grad());
        let found = forward(&lifted).backward();
        let [one, other] = [0, 1].map(|i| {
            let gradient = lifted[i].grad(&found).expect("it was tracked");
            let weights = direction::<B>(gradient.dims(), 7 + i as u64);
            (gradient * weights).sum()
        });
        let output = one + other;
        let found = output.backward();
        let gradients = inner.map(|leaf| match leaf.grad(&found) {
            Some(gradient) => read(gradient),
            // What nothing depends on may have no gradient at all.
            None => vec![0.0; leaf.shape().num_elements()],
        });
        Outcome { output: read(output), gradients }
    }
}

pub fn direction<B: Backend>(shape: [usize; 3], seed: u64) -> Tensor<B, 3> {
    let values = numbers(shape.iter().product(), seed);
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

/// Equal up to `tolerance` times the largest value of each tensor, NaN where NaN is wanted.
pub fn assert_close(what: &str, found: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    let finite = wanted.iter().copied().filter(|x| x.is_finite());
    let most = finite.fold(1e-3, |most: f32, x| most.max(x.abs()));
    for (i, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let same = found == wanted
            || found.is_nan() && wanted.is_nan()
            || (found - wanted).abs() <= tolerance * most;
        assert!(same, "{what}[{i}] is {found}, not {wanted}");
    }
}

pub fn assert_outcomes(
    what: &str,
    found: &[Outcome; 2],
    wanted: &[Outcome; 2],
    tolerances: [f32; 2],
) {
    for (name, (found, wanted)) in ["loss", "scores"].iter().zip(found.iter().zip(wanted)) {
        assert_outcome(&format!("{name}, {what}"), found, wanted, tolerances);
    }
}

pub fn assert_outcome(what: &str, found: &Outcome, wanted: &Outcome, tolerances: [f32; 2]) {
    assert_close(what, &found.output, &wanted.output, tolerances[0]);
    for (by, (found, wanted)) in
        ["support", "queries"].iter().zip(found.gradients.iter().zip(&wanted.gradients))
    {
        assert_close(&format!("{what}, by {by}"), found, wanted, tolerances[1]);
    }
}
