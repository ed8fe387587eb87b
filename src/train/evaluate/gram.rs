//! Products of all pairs of features, which many episodes have in common.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{Route, product, route};
use rayon::prelude::*;

use crate::data::Comparison;
use crate::episode::{FeatureSampler, Part};
use crate::learners::heads::{GramHead, TaskGram, task_logits};
use crate::metric::Metric;

/// Most products that are kept, 1 GiB of `f32`.
const KEPT: usize = 1 << 28;

/// Rows of products in a launch.
const BLOCK: usize = 512;

/// So many products take as long as gathering a row of an episode and computing with it, whatever the
/// length of rows: both are measured on two cores with AVX-512.
const PRODUCTS: usize = 128;

/// A class mean is no nearer to 0 than this, for cosines.
const LEAST_SQUARE: f32 = 1e-24;

/// The scalar products of each row of features with each.
struct Products {
    values: Vec<f32>,
    rows: usize,
}

impl Products {
    fn of<B: Backend>(features: Tensor<B, 2>) -> Self {
        let [rows, _] = features.dims();
        let mut values = vec![0.0; rows * rows];
        // The matrix is symmetric: each block is of columns from its first row on.
        for first in (0..rows).step_by(BLOCK) {
            let (count, rest) = (BLOCK.min(rows - first), rows - first);
            let columns = features.clone().narrow(0, first, rest);
            let block = product(columns.clone().narrow(0, 0, count), columns.transpose());
            let block = block.into_data().convert::<f32>();
            let block = block.as_slice::<f32>().expect("converted");
            values.par_chunks_exact_mut(rows).enumerate().skip(first).for_each(|(row, to)| {
                let own = row - first;
                if own < count {
                    to[first..].copy_from_slice(&block[own * rest..][..rest]);
                } else {
                    let column = block[own..].iter().step_by(rest);
                    to[first..][..count].iter_mut().zip(column).for_each(|(to, of)| *to = *of);
                }
            });
        }
        Self { values, rows }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.rows..][..self.rows]
    }

    /// Those `[m, m]` among `m` rows. One triangle is looked up, each product a miss of every cache, and
    /// mirrored.
    fn among(&self, rows: &[usize]) -> Vec<f32> {
        let size = rows.len();
        let mut found = vec![0.0; size * size];
        for (at, row) in rows.iter().enumerate() {
            let products = self.row(*row);
            let (found, others) = (&mut found[at * size..], &rows[..=at]);
            found.iter_mut().zip(others).for_each(|(found, other)| *found = products[*other]);
        }
        for at in 0..size {
            for other in 0..at {
                found[other * size + at] = found[at * size + other];
            }
        }
        found
    }
}

/// The accuracies of the first episodes by a head that needs no more than products, which are taken of
/// all pairs first where that is less than those of the episodes.
pub(super) fn gram_accuracies<B: Backend>(
    head: &dyn GramHead<B>,
    sampler: &FeatureSampler,
    [episodes, together]: [usize; 2],
    device: &B::Device,
    observer: &(dyn Fn(usize) + Sync),
) -> Vec<f64> {
    let rows = head.transform(sampler.features().tensor::<B>(device));
    let rows = match head.translation_invariant() {
        true => rows.clone() - rows.mean_dim(0),
        false => rows,
    };
    let (count, protocol) = (sampler.features().rows(), sampler.protocol());
    let size = protocol.ways * protocol.examples();
    let products = count.saturating_mul(count);
    if products <= KEPT && products <= (size * size).saturating_mul(episodes) {
        let products = Products::of(rows);
        observer(0);
        let accuracy = |index| {
            let task = Task::new(sampler, index);
            let gram =
                TaskGram::new(products.among(&task.rows), task.labels.clone(), protocol.ways);
            let accuracy = task.accuracy(&head.gram_logits(gram), protocol.ways);
            observer(1);
            accuracy
        };
        return (0..episodes as u64).into_par_iter().map(accuracy).collect();
    }
    observer(0);
    let accuracies = |first: usize| {
        let last = (first + together).min(episodes);
        let tasks = first as u64..last as u64;
        let tasks: Vec<_> = tasks.map(|index| Task::new(sampler, index)).collect();
        let numbers: Vec<_> = tasks.iter().flat_map(|task| task.rows.iter().copied()).collect();
        let labels = tasks.iter().map(|task| task.labels.clone()).collect();
        let logits = task_logits(head, rows.clone(), &numbers, labels, protocol.ways);
        observer(tasks.len());
        let of_tasks = tasks.iter().zip(&logits);
        of_tasks.map(|(task, logits)| task.accuracy(logits, protocol.ways)).collect::<Vec<_>>()
    };
    let firsts: Vec<_> = (0..episodes).step_by(together).collect();
    match route::<B>() {
        Route::Host(_) => firsts.into_par_iter().flat_map_iter(accuracies).collect(),
        // A device takes its launches from one thread, on which a reference may also be asked for.
        _ => firsts.into_iter().flat_map(accuracies).collect(),
    }
}

/// The rows of an episode, support first, and the classes of the support and of the queries.
struct Task {
    rows: Vec<usize>,
    labels: Vec<usize>,
    wanted: Vec<usize>,
}

impl Task {
    fn new(sampler: &FeatureSampler, index: u64) -> Self {
        let episode = sampler.episode(index);
        let rows = [Part::Support, Part::Query].map(|part| sampler.rows(&episode, part));
        Self {
            rows: rows.into_iter().flatten().collect(),
            labels: episode.labels(Part::Support).collect(),
            wanted: episode.labels(Part::Query).collect(),
        }
    }

    /// The share of queries whose own class has the largest of `logits` `[q, ways]`, the first of several.
    fn accuracy(&self, logits: &[f32], ways: usize) -> f64 {
        let rows = logits.chunks_exact(ways).zip(&self.wanted);
        let correct = rows.filter(|(logits, wanted)| {
            let own = logits[**wanted];
            let before = logits[..**wanted].iter().all(|other| *other < own);
            before && logits[**wanted + 1..].iter().all(|other| *other <= own)
        });
        correct.count() as f64 / self.wanted.len() as f64
    }
}

/// Whether the products of all pairs can be kept, and so many episodes take longer without them.
pub(super) fn products_pay(sampler: &FeatureSampler, episodes: usize) -> bool {
    let (features, protocol) = (sampler.features(), sampler.protocol());
    let products = features.rows().saturating_mul(features.rows());
    let gathered = (protocol.ways * protocol.examples()).saturating_mul(episodes);
    products <= KEPT && products <= gathered.saturating_mul(PRODUCTS)
}

/// The accuracies of the first episodes by the nearest class mean, whose scores are sums of products of
/// all pairs.
pub(super) fn mean_accuracies<B: Backend>(
    comparison: &Comparison,
    sampler: &FeatureSampler,
    episodes: usize,
    device: &B::Device,
    observer: &(dyn Fn(usize) + Sync),
) -> Vec<f64> {
    let features = sampler.features();
    let shape = [features.rows(), features.length()];
    let values = TensorData::new(comparison.rows(features), shape);
    let products = Products::of(Tensor::<B, 2>::from_data(values, device));
    observer(0);
    let accuracy = |index| {
        let accuracy = mean_accuracy(&products, comparison.metric, sampler, index);
        observer(1);
        accuracy
    };
    (0..episodes as u64).into_par_iter().map(accuracy).collect()
}

fn mean_accuracy(products: &Products, metric: Metric, sampler: &FeatureSampler, index: u64) -> f64 {
    let task = Task::new(sampler, index);
    let shots = sampler.protocol().shots;
    let (support, queries) = task.rows.split_at(task.labels.len());
    let mut best = vec![(f32::NEG_INFINITY, 0); queries.len()];
    let mut scores = vec![0.0; queries.len()];
    for (way, support) in support.chunks_exact(shots).enumerate() {
        score(products, metric, support, queries, &mut scores);
        for (best, &score) in best.iter_mut().zip(&scores) {
            if score > best.0 {
                *best = (score, way);
            }
        }
    }
    let correct = task.wanted.iter().zip(&best).filter(|(label, best)| **label == best.1);
    correct.count() as f64 / queries.len() as f64
}

/// How near each query is to the mean of `support`, up to what is the same for all classes: with
/// `c` the mean, `2 q c - c c` or `q c / |c|`.
fn score(
    products: &Products,
    metric: Metric,
    support: &[usize],
    queries: &[usize],
    scores: &mut [f32],
) {
    let shots = support.len() as f32;
    scores.fill(0.0);
    let mut square = 0.0;
    for &row in support {
        let products = products.row(row);
        for (score, &query) in scores.iter_mut().zip(queries) {
            *score += products[query];
        }
        square += support.iter().map(|&other| products[other]).sum::<f32>();
    }
    let square = square / (shots * shots);
    let (slope, shift) = match metric {
        Metric::SquaredEuclidean => (2.0 / shots, square),
        Metric::Cosine => (1.0 / (shots * square.max(LEAST_SQUARE).sqrt()), 0.0),
    };
    scores.iter_mut().for_each(|score| *score = slope * *score - shift);
}
