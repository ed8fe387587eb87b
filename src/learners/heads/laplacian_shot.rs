use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::Serialize;
use serde_json::{Value, json};

use super::checked::not_negative;
use super::gram::{self, GramHead, TaskGram};
use super::rectification::{LengthNormalisation, RectificationWeights, Rectified, ScoredQueries};
use super::unit_length::{centred, fixed_mean};
use super::{EmbeddedSupport, FittedHead, Head};

/// LaplacianShot: nearest prototypes, where neighbouring queries tend to the same class.
///
/// With `a_jk` the squared distance of query `j` to the rectified prototype `k` and `W` 1 at the
/// nearest neighbours of each query, `y_j <- softmax(-a_j + lambda sum_i W_ji y_i)`, from
/// `softmax(-a_j)` on. Logits are `log y`.
///
/// A task stops by itself once its bound `sum y (log y + a - lambda W y)` changes by no more than a
/// `tolerance` of itself.
///
/// # Conventions
/// The paper's 3 neighbours of each query, 20 steps and a tolerance of 1e-6, and `lambda` 1, which
/// the paper searches for on validation classes. Embeddings have length 1, after the base mean is
/// taken off where there is one; queries are shifted as in [`BdCspn`](super::BdCspn), and prototypes
/// are means with the weights `softmax_k(10 cos(x_i, p_k))`, as in the authors' code.
///
/// The authors' code and easyfsl 1.5 count a query as one of its own 3 neighbours and then leave it out,
/// which makes 2 neighbours. easyfsl also leaves lengths as they are, rectifies with the weights
/// [within a class](RectificationWeights::WithinClass) at a scale of 1, measures
/// [unshifted](ScoredQueries::Unshifted) queries, has `lambda` 0.7, and returns `y`.
///
/// No gradient flows through this head.
///
/// # Source
/// Ziko, Dolz, Granger and Ben Ayed, "Laplacian Regularized Few-Shot Learning", ICML 2020.
#[derive(Module, Debug, Serialize)]
pub struct LaplacianShot<B: Backend> {
    /// What is taken off embeddings first, `[d]`; [`with_base_mean`](Self::with_base_mean) keeps it constant.
    #[serde(skip)]
    pub base_mean: Option<Param<Tensor<B, 1>>>,
    /// Weight of neighbours, at least 0.
    pub lambda: f64,
    /// Neighbours of each query; all other queries, if they are fewer.
    pub neighbours: usize,
    /// Most steps of a task.
    pub steps: usize,
    /// Change of a task's bound, as a share of it, that ends its steps, at least 0.
    pub tolerance: f64,
    /// What cosines are multiplied by in the weights of prototypes, above 0 and up to 40.
    pub scale: f64,
    /// How much embeddings count in prototypes.
    #[module(skip)]
    pub weights: RectificationWeights,
    /// Whether embeddings are brought to length 1.
    #[module(skip)]
    pub lengths: LengthNormalisation,
    /// Which queries distances are measured from.
    #[module(skip)]
    pub scored: ScoredQueries,
}

impl<B: Backend> LaplacianShot<B> {
    /// The paper's head.
    pub fn new() -> Self {
        Self {
            base_mean: None,
            lambda: 1.0,
            neighbours: 3,
            steps: 20,
            tolerance: 1e-6,
            scale: 10.0,
            weights: RectificationWeights::OverClasses,
            lengths: LengthNormalisation::Unit,
            scored: ScoredQueries::Shifted,
        }
    }

    /// With embeddings from which the mean `[d]` of the base classes is taken off first.
    pub fn with_base_mean(self, mean: Tensor<B, 1>) -> Self {
        Self { base_mean: Some(fixed_mean(mean)), ..self }
    }

    /// Those that each query is drawn to, by the products of all.
    fn neighbours_of(&self, gram: &TaskGram) -> Vec<Vec<usize>> {
        let (first, size) = (gram.labels().len(), gram.size());
        let count = self.neighbours.min(size - first - 1);
        let nearest = |at: usize| {
            let (row, mut found) = (gram.row(at), Vec::with_capacity(count + 1));
            for other in (first..size).filter(|other| *other != at) {
                let distance = gram.square(other) - 2.0 * row[other];
                if found.len() < count || found.last().is_some_and(|(most, _)| distance < *most) {
                    let place = found.partition_point(|(nearer, _)| *nearer <= distance);
                    found.insert(place, (distance, other - first));
                    found.truncate(count);
                }
            }
            found.into_iter().map(|(_, other)| other).collect()
        };
        (first..size).map(nearest).collect()
    }

    /// `log y` `[q, ways]` of squared distances `[q, ways]` to prototypes.
    fn assigned(&self, unary: &[f32], neighbours: &[Vec<usize>], ways: usize) -> Vec<f32> {
        let lambda = self.lambda as f32;
        let pull = |y: &[f32], pulled: &mut [f32]| {
            pulled.fill(0.0);
            for (others, pulled) in neighbours.iter().zip(pulled.chunks_exact_mut(ways)) {
                for other in others {
                    let y = &y[other * ways..][..ways];
                    pulled.iter_mut().zip(y).for_each(|(sum, y)| *sum += lambda * y);
                }
            }
        };
        let mut y = vec![0.0; unary.len()];
        let mut logs: Vec<f32> = unary.iter().map(|distance| -distance).collect();
        let mut pulled = vec![0.0; unary.len()];
        log_softmax(&mut logs, &mut y, ways);
        let mut before = 0.0;
        for step in 0..self.steps {
            pull(&y, &mut pulled);
            for ((log, pulled), distance) in logs.iter_mut().zip(&pulled).zip(unary) {
                *log = pulled - distance;
            }
            log_softmax(&mut logs, &mut y, ways);
            pull(&y, &mut pulled);
            let terms = y.iter().zip(&logs).zip(unary.iter().zip(&pulled));
            let bound: f64 = terms
                .map(|((y, log), (distance, pulled))| f64::from(y * (log + distance - pulled)))
                .sum();
            if step > 1 && (bound - before).abs() <= before.abs() * self.tolerance {
                break;
            }
            before = bound;
        }
        logs
    }
}

/// Rows of `ways` logits become logarithms of probabilities, whose exponentials `y` takes.
fn log_softmax(logits: &mut [f32], y: &mut [f32], ways: usize) {
    for (logits, y) in logits.chunks_exact_mut(ways).zip(y.chunks_exact_mut(ways)) {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        y.iter_mut().zip(&*logits).for_each(|(y, logit)| *y = (logit - most).exp());
        let sum: f32 = y.iter().sum();
        let log_sum = sum.ln();
        logits.iter_mut().for_each(|logit| *logit = (*logit - most) - log_sum);
        y.iter_mut().for_each(|y| *y /= sum);
    }
}

impl<B: Backend> Default for LaplacianShot<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> GramHead<B> for LaplacianShot<B> {
    fn transform(&self, embeddings: Tensor<B, 2>) -> Tensor<B, 2> {
        self.lengths.of(centred(embeddings, self.base_mean.as_ref().map(Param::val)))
    }

    fn gram_logits(&self, gram: TaskGram) -> Vec<f32> {
        not_negative("lambda", [self.lambda]);
        not_negative("a tolerance", [self.tolerance]);
        let rectified = Rectified::new(gram, self.weights, self.scale, self.scored);
        let unary = rectified.scores(|dot, [query, prototype]| query + prototype - 2.0 * dot);
        let gram = &rectified.gram;
        self.assigned(&unary, &self.neighbours_of(gram), gram.ways())
    }
}

impl<B: Backend> Head<B> for LaplacianShot<B> {
    const NAME: &'static str = "laplacian-shot";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        gram::fitted(self.clone(), support)
    }

    fn gram_head(&self) -> Option<&dyn GramHead<B>> {
        Some(self)
    }

    fn settings(&self) -> Value {
        json!(self)
    }
}
