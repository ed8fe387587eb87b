use burn::module::{Module, Param};
use burn::prelude::ToElement;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, IndexingUpdateOp, Tensor};
use fewshot_kernels::{Metric, Route, product, route, scores};
use serde::Serialize;
use serde_json::{Value, json};

use super::checked::not_negative;
use super::nearest::largest;
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
    /// Mean `[d]` that is first taken off embeddings; [`with_base_mean`](Self::with_base_mean) keeps it constant.
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
    /// Factor of the cosines in the weights of prototypes, above 0 and up to 40.
    pub scale: f64,
    /// Weights of embeddings in prototypes.
    #[module(skip)]
    pub weights: RectificationWeights,
    /// Lengths of the embeddings.
    #[module(skip)]
    pub lengths: LengthNormalisation,
    /// Queries that distances are measured from.
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

    /// Embeddings `[t, n, d]` as the method compares them.
    fn transform(&self, embeddings: Tensor<B, 3>) -> Tensor<B, 3> {
        let mean = self.base_mean.as_ref().map(Param::val);
        self.lengths.of(centred(embeddings.detach(), mean))
    }

    /// `W` `[t, q, q]`: 1 at the nearest neighbours of each query and 0 elsewhere.
    fn neighbour_matrix(&self, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        let [tasks, count, _] = queries.dims();
        let nearness = scores(queries.clone(), queries, Metric::SquaredEuclidean);
        let itself = Tensor::<B, 2>::eye(count, &nearness.device()).greater_elem(0.5);
        let itself = itself.unsqueeze::<3>().expand([tasks, count, count]);
        let (matrix, neighbours) = (nearness.zeros_like(), self.neighbours.min(count - 1));
        if neighbours == 0 {
            return matrix;
        }
        let nearest = largest(nearness.mask_fill(itself, f32::NEG_INFINITY), neighbours);
        let ones = Tensor::ones(nearest.dims(), (&matrix.device(), matrix.dtype()));
        matrix.scatter(2, nearest, ones, IndexingUpdateOp::Add)
    }

    /// `log y` `[t, q, ways]` of squared distances `[t, q, ways]` to prototypes and of `W` `[t, q, q]`.
    fn assigned(&self, distances: Tensor<B, 3>, neighbours: &Tensor<B, 3>) -> Tensor<B, 3> {
        let pull = |y: Tensor<B, 3>| product(neighbours.clone(), y) * self.lambda;
        let mut logs = log_softmax(distances.clone().neg(), 2);
        let mut pulled = pull(logs.clone().exp());
        let (mut before, mut stopped) = (None::<Tensor<B, 3>>, None::<Tensor<B, 3, Bool>>);
        for step in 0..self.steps {
            let next = log_softmax(pulled - distances.clone(), 2);
            // The bound of a task that has stopped stays, so that the task stays stopped.
            logs = match stopped.take() {
                Some(stopped) => next.mask_where(stopped.expand(logs.dims()), logs),
                None => next,
            };
            let y = logs.clone().exp();
            pulled = pull(y.clone());
            let terms = y * (logs.clone() + distances.clone() - pulled.clone());
            let bound = terms.sum_dim(2).sum_dim(1);
            if let Some(before) = before.replace(bound.clone()).filter(|_| step > 1) {
                let change = (bound - before.clone()).abs();
                let now = change.lower_equal(before.abs() * self.tolerance);
                // Elsewhere a step costs less than to wait for an answer.
                if matches!(route::<B>(), Route::Host(_))
                    && now.clone().all().into_scalar().to_bool()
                {
                    break;
                }
                stopped = Some(now);
            }
        }
        logs
    }
}

impl<B: Backend> Default for LaplacianShot<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for LaplacianShot<B> {
    const NAME: &'static str = "laplacian-shot";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        not_negative("lambda", [self.lambda]);
        not_negative("a tolerance", [self.tolerance]);
        let head = self.clone();
        let support = support.with_embeddings(head.transform(support.embeddings.clone()));
        FittedHead::new(support.ways, move |queries| {
            let queries = head.transform(queries);
            let Rectified { moved, scored, prototypes } =
                Rectified::new(&support, queries, head.weights, head.scale, head.scored);
            let distances = scores(scored, prototypes, Metric::SquaredEuclidean).neg();
            head.assigned(distances, &head.neighbour_matrix(moved))
        })
    }

    fn transductive(&self) -> bool {
        true
    }

    fn settings(&self) -> Value {
        json!(self)
    }
}
