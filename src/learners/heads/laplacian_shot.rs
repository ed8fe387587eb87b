use burn::module::{Module, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{IndexingUpdateOp, Tensor};
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bd_cspn::{MOST_SCALE, RectificationWeights, ScoredQueries, rectified};
use super::shifted::{LengthNormalisation, Shifted};
use super::{EmbeddedSupport, TransductiveHead, no_logits};

/// Farther than any query.
const FAR: f64 = 1e30;

/// Which queries [`LaplacianShot`] draws together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// A query follows its own nearest neighbours.
    Directed,
    /// It also follows those whose neighbour it is.
    Symmetric,
}

/// LaplacianShot: nearest prototypes, where neighbouring queries tend to the same class.
///
/// With `a_jk` the squared distance of query `j` to the rectified prototype `k` and `W` 1 at the
/// nearest neighbours of each query, `y_j <- softmax(-a_j + lambda sum_i W_ji y_i)`, from
/// `softmax(-a_j)` on. Logits are `log y`.
///
/// A task stops by itself once its bound `sum y (log y + a - lambda W y)` changes by no more than a
/// `tolerance` of itself.
///
/// # Shapes
/// Support `[t, n, d]` and queries `[t, q, d]` give logits `[t, q, ways]`.
///
/// # Conventions
/// The paper's 3 neighbours of each query, 20 steps and a tolerance of 1e-6, and `lambda` 1, which
/// the paper searches for on validation classes. Embeddings have length 1, after the base mean is
/// taken off where there is one; queries are shifted as in [`BdCspn`](super::BdCspn), and prototypes
/// are means with the weights `softmax_k(10 cos(x_i, p_k))`, as in the authors' code.
///
/// The authors' code and easyfsl 1.5 count a query among its 3 neighbours and then leave it out: 2
/// [neighbours](Self::with_neighbours). easyfsl also leaves [lengths](Self::with_lengths) as they
/// are, rectifies with the weights [within a class](RectificationWeights::WithinClass) at a scale of 1, measures
/// [unshifted](ScoredQueries::Unshifted) queries, has `lambda` 0.7, and returns `y`.
///
/// No gradient flows through the choice of neighbours and of the last step.
///
/// # Panics
/// When the base mean has not as many features as the embeddings.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot::learners::heads::{EmbeddedSupport, LaplacianShot, TransductiveHead};
///
/// let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_data([[[1.0, 0.0], [0.0, 1.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let queries = Tensor::from_data([[[3.0, 1.0], [1.0, 2.0]]], &device);
/// let classes = LaplacianShot::new().logits(support, queries).argmax(2);
/// assert_eq!(classes.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1]);
/// ```
///
/// # Source
/// Ziko, Dolz, Granger and Ben Ayed, "Laplacian Regularized Few-Shot Learning", ICML 2020.
#[derive(Module, Debug)]
pub struct LaplacianShot<B: Backend> {
    base_mean: Option<Param<Tensor<B, 1>>>,
    lambda: f64,
    neighbours: usize,
    #[module(skip)]
    affinity: Affinity,
    steps: usize,
    tolerance: f64,
    scale: f64,
    #[module(skip)]
    weights: RectificationWeights,
    #[module(skip)]
    lengths: LengthNormalisation,
    #[module(skip)]
    scored: ScoredQueries,
}

impl<B: Backend> LaplacianShot<B> {
    /// The paper's head.
    pub fn new() -> Self {
        Self {
            base_mean: None,
            lambda: 1.0,
            neighbours: 3,
            affinity: Affinity::Directed,
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
        let mean = Param::from_tensor(mean.detach()).set_require_grad(false);
        Self { base_mean: Some(mean), ..self }
    }

    /// With another weight of neighbours.
    ///
    /// # Panics
    /// Unless it is finite and not below 0.
    pub fn with_lambda(self, lambda: f64) -> Self {
        assert!(lambda.is_finite() && lambda >= 0.0, "lambda is not below 0, found {lambda}");
        Self { lambda, ..self }
    }

    /// With so many neighbours of each query, or all others if they are fewer.
    pub fn with_neighbours(self, neighbours: usize) -> Self {
        Self { neighbours, ..self }
    }

    /// With neighbourhood in both directions.
    pub fn with_affinity(self, affinity: Affinity) -> Self {
        Self { affinity, ..self }
    }

    /// With at most so many steps, fewer for tasks whose bound changes by a smaller part of itself.
    ///
    /// # Panics
    /// Unless the tolerance is finite and not below 0.
    pub fn with_steps(self, steps: usize, tolerance: f64) -> Self {
        let fits = tolerance.is_finite() && tolerance >= 0.0;
        assert!(fits, "a tolerance is not below 0, found {tolerance}");
        Self { steps, tolerance, ..self }
    }

    /// With prototypes rectified by other weights of cosines that are multiplied by `scale`.
    ///
    /// # Panics
    /// Unless the scale is above 0 and up to 40.
    pub fn with_rectification(self, weights: RectificationWeights, scale: f64) -> Self {
        assert!(
            scale > 0.0 && scale <= MOST_SCALE,
            "a scale is above 0 and up to 40, found {scale}"
        );
        Self { weights, scale, ..self }
    }

    /// With embeddings of length 1 or as they are.
    pub fn with_lengths(self, lengths: LengthNormalisation) -> Self {
        Self { lengths, ..self }
    }

    /// With other queries to measure distances from.
    pub fn with_scored(self, scored: ScoredQueries) -> Self {
        Self { scored, ..self }
    }

    fn centred(&self, embeddings: Tensor<B, 3>) -> Tensor<B, 3> {
        let Some(mean) = &self.base_mean else { return embeddings };
        let (mean, [.., features]) = (mean.val(), embeddings.dims());
        assert_eq!(mean.dims(), [features], "a base mean has as many features as the embeddings");
        embeddings - mean.unsqueeze()
    }

    /// `W`, `[t, q, q]`, from squared distances of the same shape.
    fn affinities(&self, mut distances: Tensor<B, 3>) -> Tensor<B, 3> {
        let ([tasks, queries, _], device) = (distances.dims(), distances.device());
        let mut affinities = distances.zeros_like();
        let chosen = Tensor::ones([tasks, queries, 1], &device);
        // Row by row of all tasks, since a matrix broadcasts faster along tasks as one long row.
        let itself = Tensor::<B, 2>::eye(queries, &device).reshape([1, queries * queries]) * FAR;
        distances = (distances.flatten::<2>(1, 2) + itself).reshape([tasks, queries, queries]);
        for _ in 0..self.neighbours.min(queries.saturating_sub(1)) {
            let nearest = distances.clone().argmin(2);
            let put = |to: Tensor<B, 3>, value: f64| {
                to.scatter(2, nearest.clone(), chosen.clone() * value, IndexingUpdateOp::Add)
            };
            (affinities, distances) = (put(affinities, 1.0), put(distances, FAR));
        }
        match self.affinity {
            Affinity::Directed => affinities,
            Affinity::Symmetric => affinities.clone().max_pair(affinities.swap_dims(1, 2)),
        }
    }

    /// `log y`, from `a` `[t, q, ways]` and `W` `[t, q, q]`.
    fn assigned(&self, unary: Tensor<B, 3>, affinities: Tensor<B, 3>) -> Tensor<B, 3> {
        let pull = |y: Tensor<B, 3>| product(affinities.clone(), y) * self.lambda;
        let mut logits = log_softmax(unary.clone().neg(), 2);
        let mut pulled = pull(logits.clone().exp());
        let mut before = Tensor::zeros([unary.dims()[0], 1, 1], &unary.device());
        let mut stopped = before.clone().bool();
        for step in 0..self.steps {
            let next = log_softmax(pulled - unary.clone(), 2);
            let y = next.clone().exp();
            pulled = pull(y.clone());
            let held = stopped.clone().expand(next.dims());
            logits = next.clone().mask_where(held, logits);
            let bound =
                (y * (next + unary.clone() - pulled.clone())).sum_dim(2).sum_dim(1).detach();
            if step > 1 {
                let moved = (bound.clone() - before.clone()).abs();
                stopped = stopped.bool_or(moved.lower_equal(before.abs() * self.tolerance));
            }
            before = bound;
        }
        logits
    }
}

impl<B: Backend> Default for LaplacianShot<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> TransductiveHead<B> for LaplacianShot<B> {
    fn logits(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        if let Some(none) = no_logits(&queries, support.ways) {
            return none;
        }
        let support = support.with_embeddings(self.centred(support.embeddings.clone()));
        let (support, queries) = Shifted::new(support, self.centred(queries), self.lengths);
        let prototypes = rectified(&support, &queries, self.weights, self.scale);
        let affinities = self.affinities(queries.among().detach());
        let queries = match self.scored {
            ScoredQueries::Shifted => queries,
            ScoredQueries::Unshifted => queries.unshifted(),
        };
        self.assigned(queries.distances(prototypes), affinities)
    }

    fn name(&self) -> &'static str {
        "laplacian-shot"
    }

    fn settings(&self) -> Value {
        json!({
            "lambda": self.lambda,
            "neighbours": self.neighbours,
            "affinity": self.affinity,
            "steps": self.steps,
            "tolerance": self.tolerance,
            "weights": self.weights,
            "scale": self.scale,
            "lengths": self.lengths,
            "scored": self.scored,
        })
    }
}
