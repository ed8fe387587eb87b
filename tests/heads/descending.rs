//! Slow and plain f64 that fitted heads are compared with: losses are formulas, gradients central
//! differences.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use fewshot::learners::heads::EmbeddedSupport;

/// Numbers from -1 to 1.
pub fn drawn(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0
    };
    (0..count).map(next).collect()
}

/// A task in the order of the classes, of which each has a shot more than the one before.
pub struct Task {
    pub ways: usize,
    labels: Vec<usize>,
    pub features: usize,
    pub support: Vec<f64>,
    pub queries: Vec<f64>,
}

impl Task {
    /// Of 3 classes and 4 features, with `shots` of the first class; each class surrounds a center at a distance of
    /// `spread`.
    pub fn new(shots: usize, queries: usize, spread: f64, seed: u64) -> Self {
        let (ways, features) = (3, 4);
        let centers = drawn(ways * features, seed);
        let around = |labels: &[usize], seed: u64| {
            let noise = drawn(labels.len() * features, seed);
            let of = |i: usize| labels[i / features] * features + i % features;
            (0..noise.len()).map(|i| centers[of(i)] + spread * noise[i]).collect::<Vec<_>>()
        };
        let of_class = |class| std::iter::repeat_n(class, shots + class);
        let labels: Vec<_> = (0..ways).flat_map(of_class).collect();
        let asked: Vec<_> = (0..queries).map(|query| query % ways).collect();
        let (support, queries) = (around(&labels, seed + 1), around(&asked, seed + 2));
        Self { ways, labels, features, support, queries }
    }

    pub fn label(&self, example: usize) -> usize {
        self.labels[example]
    }

    pub fn support<B: Backend>(&self) -> EmbeddedSupport<B> {
        let labels: Vec<_> = self.labels.iter().map(|&label| label as i64).collect();
        let labels = TensorData::new(labels, [1, self.labels.len()]);
        let labels = Tensor::<B, 2, Int>::from_data(labels, &Default::default());
        EmbeddedSupport::new(self.tensor(&self.support), labels, self.ways)
    }

    pub fn queries<B: Backend>(&self) -> Tensor<B, 3> {
        self.tensor(&self.queries)
    }

    fn tensor<B: Backend>(&self, values: &[f64]) -> Tensor<B, 3> {
        let dims = [1, values.len() / self.features, self.features];
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        Tensor::from_data(TensorData::new(values, dims), &Default::default())
    }

    /// Class means.
    pub fn prototypes(&self) -> Vec<f64> {
        let of = |k: usize, j: usize| {
            let rows = self.support.chunks(self.features).zip(&self.labels);
            let shots = rows.filter(|(_, label)| **label == k).map(|(row, _)| row[j]);
            let shots: Vec<_> = shots.collect();
            shots.iter().sum::<f64>() / shots.len() as f64
        };
        (0..self.ways * self.features).map(|i| of(i / self.features, i % self.features)).collect()
    }

    /// The same with embeddings of length 1.
    pub fn normalized(&self) -> Self {
        let [support, queries] =
            [&self.support, &self.queries].map(|rows| normalized(rows, self.features));
        Self { support, queries, labels: self.labels.clone(), ..*self }
    }

    /// Mean cross-entropy of the support, of logits by embedding and class.
    pub fn cross_entropy(&self, logit: impl Fn(&[f64], usize) -> f64) -> f64 {
        let all = self.probabilities(&self.support, logit);
        let of = all.iter().enumerate().map(|(i, p)| -p[self.label(i)].ln());
        of.sum::<f64>() / all.len() as f64
    }

    /// Of each of `rows`.
    pub fn probabilities(
        &self,
        rows: &[f64],
        logit: impl Fn(&[f64], usize) -> f64,
    ) -> Vec<Vec<f64>> {
        let of = |row: &[f64]| {
            let all: Vec<f64> = (0..self.ways).map(|k| logit(row, k).exp()).collect();
            let sum: f64 = all.iter().sum();
            all.into_iter().map(|value| value / sum).collect()
        };
        rows.chunks(self.features).map(of).collect()
    }
}

pub fn entropy(p: &[f64]) -> f64 {
    -p.iter().map(|p| p * p.ln()).sum::<f64>()
}

pub fn mean_entropy(all: &[Vec<f64>]) -> f64 {
    all.iter().map(|p| entropy(p)).sum::<f64>() / all.len() as f64
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

pub fn square_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

pub fn normalized(rows: &[f64], features: usize) -> Vec<f64> {
    let of = |row: &[f64]| {
        let length = dot(row, row).sqrt();
        row.iter().map(|value| value / length).collect::<Vec<_>>()
    };
    rows.chunks(features).flat_map(of).collect()
}

/// By central differences.
pub fn gradient(loss: &dyn Fn(&[f64]) -> f64, at: &[f64]) -> Vec<f64> {
    let by = |i: usize| {
        let moved = |step: f64| {
            let mut at = at.to_vec();
            at[i] += step;
            loss(&at)
        };
        (moved(1e-6) - moved(-1e-6)) / 2e-6
    };
    (0..at.len()).map(by).collect()
}

/// The steps of `torch.optim.Adam`.
pub struct Adam {
    rate: f64,
    time: i32,
    moments: Vec<[f64; 2]>,
}

impl Adam {
    pub fn new(rate: f64) -> Self {
        Self { rate, time: 0, moments: Vec::new() }
    }

    pub fn step(&mut self, weights: &mut [f64], gradient: &[f64]) {
        self.time += 1;
        self.moments.resize(weights.len(), [0.0; 2]);
        for ((w, g), [m, v]) in weights.iter_mut().zip(gradient).zip(&mut self.moments) {
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let [m, v] =
                [*m / (1.0 - 0.9_f64.powi(self.time)), *v / (1.0 - 0.999_f64.powi(self.time))];
            *w -= self.rate * m / (v.sqrt() + 1e-8);
        }
    }
}

/// The steps of `torch.optim.SGD` with Chen et al.'s momentum of 0.9, dampening of 0.9 and weight
/// decay of 0.001, at a rate of 0.01.
pub fn descended(loss: &dyn Fn(&[f64]) -> f64, start: &[f64], steps: usize) -> Vec<f64> {
    let mut weights = start.to_vec();
    let mut velocity = Vec::new();
    for _ in 0..steps {
        let slopes = gradient(loss, &weights);
        let slopes: Vec<f64> = slopes.iter().zip(&weights).map(|(g, w)| g + 0.001 * w).collect();
        velocity = match velocity.is_empty() {
            true => slopes,
            false => velocity.iter().zip(&slopes).map(|(v, g)| 0.9 * v + (1.0 - 0.9) * g).collect(),
        };
        weights.iter_mut().zip(&velocity).for_each(|(w, v)| *w -= 0.01 * v);
    }
    weights
}

/// Whether all differ by no more than `within`.
pub fn assert_near<B: Backend, const D: usize>(found: Tensor<B, D>, wanted: &[f64], within: f64) {
    let found: Vec<f64> = found.into_data().iter::<f64>().collect();
    assert_eq!(found.len(), wanted.len());
    let far = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far <= within, "{far} apart\nfound {found:?}\nwanted {wanted:?}");
}
