//! Products of all pairs of features, of which the scores of nearest class means are sums.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::product;
use rayon::prelude::*;

use crate::data::{Comparison, Features};
use crate::episode::{FeatureSampler, Part};
use crate::metric::Metric;

/// Most products that are kept, 1 GiB of `f32`.
const KEPT: usize = 1 << 28;

/// Rows of products in a launch.
const BLOCK: usize = 1024;

/// So many products take as long as gathering a row of an episode and computing with it, whatever the
/// length of rows: both are measured on two cores with AVX-512.
const PRODUCTS: usize = 128;

/// A class mean is no nearer to 0 than this, for cosines.
const LEAST_SQUARE: f32 = 1e-24;

/// The matrix of the products of each row of features with each.
pub(super) struct Gram {
    products: Vec<f32>,
    rows: usize,
    metric: Metric,
}

impl Gram {
    /// Whether the matrix can be kept, and so many episodes take longer without it.
    pub(super) fn pays(sampler: &FeatureSampler, episodes: usize) -> bool {
        let (features, protocol) = (sampler.features(), sampler.protocol());
        let products = features.rows().saturating_mul(features.rows());
        let gathered = (protocol.ways * protocol.examples()).saturating_mul(episodes);
        products <= KEPT && products <= gathered.saturating_mul(PRODUCTS)
    }

    pub(super) fn of<B: Backend>(
        comparison: &Comparison,
        features: &Features,
        device: &B::Device,
    ) -> Self {
        let (rows, metric) = (features.rows(), comparison.metric);
        let values = TensorData::new(comparison.rows(features), [rows, features.length()]);
        let values = Tensor::<B, 2>::from_data(values, device);
        let columns = values.clone().transpose();
        let mut products = Vec::with_capacity(rows * rows);
        for block in values.split(BLOCK, 0) {
            let block = product(block, columns.clone()).into_data().convert::<f32>();
            products.extend_from_slice(block.as_slice().expect("converted"));
        }
        Self { products, rows, metric }
    }

    /// The accuracy of each of the first episodes.
    pub(super) fn accuracies(&self, sampler: &FeatureSampler, episodes: usize) -> Vec<f64> {
        let episodes = (0..episodes as u64).into_par_iter();
        episodes.map(|index| self.accuracy(sampler, index)).collect()
    }

    fn accuracy(&self, sampler: &FeatureSampler, index: u64) -> f64 {
        let episode = sampler.episode(index);
        let shots = sampler.protocol().shots;
        let support: Vec<_> = sampler.rows(&episode, Part::Support).collect();
        let queries: Vec<_> = sampler.rows(&episode, Part::Query).collect();
        let mut best = vec![(f32::NEG_INFINITY, 0); queries.len()];
        let mut scores = vec![0.0; queries.len()];
        for (way, support) in support.chunks_exact(shots).enumerate() {
            self.score(support, &queries, &mut scores);
            for (best, &score) in best.iter_mut().zip(&scores) {
                if score > best.0 {
                    *best = (score, way);
                }
            }
        }
        let classes = episode.classes.iter().enumerate();
        let labels = classes.flat_map(|(way, draw)| draw.query.iter().map(move |_| way));
        let correct = labels.zip(&best).filter(|(label, best)| *label == best.1).count();
        correct as f64 / queries.len() as f64
    }

    /// How near each query is to the mean of `support`, up to what is the same for all classes: with
    /// `c` the mean, `2 q c - c c` or `q c / |c|`.
    fn score(&self, support: &[usize], queries: &[usize], scores: &mut [f32]) {
        let shots = support.len() as f32;
        scores.fill(0.0);
        let mut square = 0.0;
        for &row in support {
            let products = &self.products[row * self.rows..][..self.rows];
            for (score, &query) in scores.iter_mut().zip(queries) {
                *score += products[query];
            }
            square += support.iter().map(|&other| products[other]).sum::<f32>();
        }
        let square = square / (shots * shots);
        let (slope, shift) = match self.metric {
            Metric::SquaredEuclidean => (2.0 / shots, square),
            Metric::Cosine => (1.0 / (shots * square.max(LEAST_SQUARE).sqrt()), 0.0),
        };
        scores.iter_mut().for_each(|score| *score = slope * *score - shift);
    }
}
