//! Numbers and what they are compared by.

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use fewshot::learners::heads::{EmbeddedEpisode, EmbeddedSupport, Head};

pub type Trained = Autodiff<Flex>;

/// As many numbers, from -1 to 1, that look drawn.
pub fn drawn(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // As f32, so that tensors have the same values.
        f64::from((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    std::iter::repeat_with(next).take(count).collect()
}

pub fn tensor<B: Backend, const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<B, D> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

/// The support of a single task.
pub fn support<B: Backend>(values: &[f64], labels: &[usize], ways: usize) -> EmbeddedSupport<B> {
    let count = labels.len();
    let labels: Vec<i32> = labels.iter().map(|&label| label as i32).collect();
    let labels = TensorData::new(labels, [1, count]);
    let labels = Tensor::<B, 2, Int>::from_data(labels, &Default::default());
    EmbeddedSupport::new(tensor(values, [1, count, values.len() / count]), labels, ways)
}

/// The episode of a support and labelled queries.
pub fn episode<B: Backend>(
    support: EmbeddedSupport<B>,
    queries: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
) -> EmbeddedEpisode<B> {
    let embeddings = Tensor::cat(vec![support.embeddings, queries], 1);
    EmbeddedEpisode::new(embeddings, [support.labels, labels], support.ways)
}

/// Logits of queries, one after the other.
pub fn logits<B: Backend>(
    head: &impl Head<B>,
    support: EmbeddedSupport<B>,
    queries: &[f64],
) -> Vec<f64> {
    let features = support.embeddings.dims()[2];
    let queries = tensor(queries, [1, queries.len() / features, features]);
    head.fit(support).logits(queries).into_data().iter::<f64>().collect()
}

/// Values of a tensor.
pub fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

pub fn assert_near(found: &[f64], wanted: &[f64], allowed: f64) {
    assert_eq!(found.len(), wanted.len());
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= allowed * (1.0 + b.abs());
    assert!(found.iter().zip(wanted).all(near), "{found:?}\nis not\n{wanted:?}");
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt())
}

pub fn square_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Mean of those of `rows` of `features` values that have this label.
pub fn mean_of(rows: &[f64], features: usize, labels: &[usize], label: usize) -> Vec<f64> {
    let members: Vec<&[f64]> = rows
        .chunks(features)
        .zip(labels)
        .filter_map(|(row, &of)| (of == label).then_some(row))
        .collect();
    (0..features)
        .map(|at| members.iter().map(|row| row[at]).sum::<f64>() / members.len() as f64)
        .collect()
}

/// `weights[i] * values[i]`, added up over logits of any shape.
pub fn weighted<B: Backend, const D: usize>(logits: Tensor<B, D>, seed: u64) -> Tensor<B, 1> {
    let shape = logits.dims();
    let weights = tensor::<B, D>(&drawn(shape.iter().product(), seed), shape);
    (logits * weights).sum()
}
