//! What BD-CSPN and LaplacianShot have in common: class means drawn towards the queries.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::gram::TaskGram;
use super::unit_length::{LEAST_SQUARE, unit_length};

/// Weights from `exp(-2 s)` to 1 are numbers above 0 in f32.
const MOST_SCALE: f64 = 40.0;

/// Whether a head divides embeddings by their lengths before all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthNormalisation {
    /// All embeddings are brought to length 1.
    Unit,
    /// Embeddings stay as they are.
    Given,
}

impl LengthNormalisation {
    /// `embeddings` `[n, d]` as the head sees them.
    pub(super) fn of<B: Backend, const D: usize>(self, embeddings: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Unit => unit_length(embeddings, D - 1),
            Self::Given => embeddings,
        }
    }
}

/// Which queries are compared with prototypes in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoredQueries {
    /// The queries after the shift onto the support, by which prototypes are rectified too.
    Shifted,
    /// The queries before the shift.
    Unshifted,
}

/// How much embeddings count in the rectified prototype of their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RectificationWeights {
    /// A softmax of scaled cosines over all embeddings of the class: BD-CSPN.
    WithinClass,
    /// A softmax of scaled cosines over all classes, in a plain mean: LaplacianShot's authors' code.
    OverClasses,
}

/// A task whose queries are moved by `mean(S) - mean(Q)`, and its rectified prototypes: means of support and
/// pseudo-labelled queries.
pub(super) struct Rectified {
    /// Products of the support and the moved queries.
    pub gram: TaskGram,
    /// Squared lengths `[ways]` of the prototypes.
    squares: Vec<f32>,
    /// Products `[ways, q]` of the prototypes with the queries that are scored.
    dots: Vec<f32>,
    /// Squared lengths `[q]` of these queries.
    of_queries: Vec<f32>,
}

impl Rectified {
    /// # Panics
    /// Unless `scale`, the factor of the cosines, is above 0 and up to 40.
    pub fn new(
        gram: TaskGram,
        weights: RectificationWeights,
        scale: f64,
        scored: ScoredQueries,
    ) -> Self {
        let fits = scale > 0.0 && scale <= MOST_SCALE;
        assert!(fits, "a scale is above 0 and up to 40, found {scale}");
        let (size, support) = (gram.size(), gram.labels().len());
        let mut shift = vec![1.0 / support as f32; size];
        shift[support..].fill(-1.0 / (size - support) as f32);
        let squares = |gram: &TaskGram| (support..size).map(|at| gram.square(at)).collect();
        let mut of_queries: Vec<f32> = squares(&gram);
        let of_shift = gram.sums(&shift);
        let gram = gram.translated([&vec![0.0; size], &shift]);
        let weights = rectifying(&gram, weights, scale as f32);
        let mut prototypes = gram.sums(&weights);
        match scored {
            ScoredQueries::Shifted => of_queries = squares(&gram),
            ScoredQueries::Unshifted => {
                let dots = prototypes.dots.chunks_exact_mut(size).zip(weights.chunks_exact(size));
                for (dots, weights) in dots {
                    let of_unmoved = weights.iter().zip(&of_shift.dots).map(|(w, dot)| w * dot);
                    let moved = weights[support..].iter().sum::<f32>() * of_shift.squares[0];
                    let by = of_unmoved.sum::<f32>() + moved;
                    dots.iter_mut().for_each(|dot| *dot -= by);
                }
            }
        }
        let dots =
            prototypes.dots.chunks_exact(size).flat_map(|dots| dots[support..].iter().copied());
        Self { dots: dots.collect(), squares: prototypes.squares, of_queries, gram }
    }

    /// What `score` makes of the product of a query with a prototype and their squared lengths,
    /// `[q, ways]`.
    pub fn scores(&self, score: impl Fn(f32, [f32; 2]) -> f32) -> Vec<f32> {
        let (ways, queries) = (self.squares.len(), self.of_queries.len());
        let mut scores = Vec::with_capacity(ways * queries);
        for (query, square) in self.of_queries.iter().enumerate() {
            let of_way =
                |way: usize| score(self.dots[way * queries + query], [*square, self.squares[way]]);
            scores.extend((0..ways).map(of_way));
        }
        scores
    }
}

/// Weights `[ways, m]` of rectified prototypes.
fn rectifying(gram: &TaskGram, weights: RectificationWeights, scale: f32) -> Vec<f32> {
    let (size, ways, support) = (gram.size(), gram.ways(), gram.labels().len());
    let means = gram.sums(&gram.class_means());
    let mut found = vec![0.0; ways * size];
    let mut totals = vec![0.0; ways];
    let mut cosines = vec![0.0; ways];
    for at in 0..size {
        for (class, found) in cosines.iter_mut().enumerate() {
            let squares = [means.squares[class], gram.square(at)];
            *found = cosine(means.dots[class * size + at], squares);
        }
        let class = match at < support {
            true => gram.labels()[at],
            false => argmax(&cosines),
        };
        let (weight, share) = match weights {
            RectificationWeights::WithinClass => {
                let weight = ((cosines[class] - 1.0) * scale).exp();
                (weight, weight)
            }
            RectificationWeights::OverClasses => {
                let of = |cosine: &f32| ((cosine - cosines[class]) * scale).exp();
                (1.0 / cosines.iter().map(of).sum::<f32>(), 1.0)
            }
        };
        found[class * size + at] = weight;
        totals[class] += share;
    }
    for (weights, total) in found.chunks_exact_mut(size).zip(totals) {
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
    found
}

/// The cosine of vectors with these squared lengths and this product, in bounds where rounding has left
/// nothing of a length.
pub(super) fn cosine(dot: f32, squares: [f32; 2]) -> f32 {
    let [one, other] = squares.map(|square| square.max(LEAST_SQUARE as f32).sqrt());
    (dot / (one * other)).clamp(-1.0, 1.0)
}

/// Index of the largest value; the first, if several are.
fn argmax(values: &[f32]) -> usize {
    let mut found = 0;
    for (at, value) in values.iter().enumerate() {
        if *value > values[found] {
            found = at;
        }
    }
    found
}
