use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;
use fewshot_kernels::split_at;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::{not_negative, positive, some_steps};
use super::similarity::{Scored, Similarity};
use super::slopes::{cross_entropy_slopes, entropy_slopes};
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head};

/// Least sum of a class over all queries, which something is divided by.
const LEAST_SUM: f64 = 1e-30;

/// Solver that lowers the loss of [`Tim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimSolver {
    /// Gradient descent by Adam: TIM-GD.
    Gd,
    /// Alternating direction method, in closed form: TIM-ADM.
    Adm,
}

/// Transductive information maximization: class weights that make the queries as informative as
/// possible about their classes, while they fit the support.
///
/// `loss = c CE - m H(mean_j p(· | x_j)) + h mean_j H(p(· | x_j))` with the cross-entropy `CE` of the
/// support, entropies `H` over the queries `x_j`, and
/// `p(y = k | x) = softmax_k(-temperature / 2 * |x - w_k|^2)`, from `w_k` the class means.
///
/// The alternating method gives each query a distribution `q_j` of its own, which a penalty
/// `mean_j KL(q_j || p(· | x_j))` ties to its prediction, and solves for one after the other:
/// `q_jk ∝ p_jk^(1 + h) / (Σ_j p_jk^(1 + h))^(m / (1 + m))`, and
/// `w_k = (a Σ_i (y_ik x_i + p_ik (w_k - x_i)) + b Σ_j (q_jk x_j + p_jk (w_k - x_j)))
/// / (a Σ_i y_ik + b Σ_j q_jk)` with `a = c / (1 + h)` and `b` the number of support over that of
/// queries.
///
/// # Conventions
/// - Embeddings are normalised first, as in the authors' code. Defaults are the paper's: a
///   temperature of 15, weights `c = 0.1, m = 1, h = 0.1`, and 1000 steps of Adam at a rate of 0.0001
///   or 150 alternations.
/// - The closed form of `q` ignores, while it weighs classes, that `q` sums to 1, and that of `w`
///   holds `p` fixed: the loss falls from step to step where queries lie in clusters, and need not
///   fall where they do not.
/// - easyfsl's TIM is gradient descent on [`Similarity::Cosine`], `softmax_k(temperature *
///   cos(x, w_k))`, from the class means of embeddings as they are: [`easyfsl`](Self::easyfsl). Its
///   benchmark has a rate of 0.001 and `h = 0.5`. Its scores are bare cosines; the logits here are
///   these times the temperature.
/// - The logits send no gradient back to embeddings.
///
/// # Source
/// Boudiaf, Masud, Rony, Dolz, Piantanida and Ben Ayed, "Transductive Information Maximization For
/// Few-Shot Learning", NeurIPS 2020.
#[derive(Module, Clone, Debug)]
pub struct Tim {
    /// Solver that lowers the loss.
    #[module(skip)]
    pub solver: TimSolver,
    /// The score; all but the cosine are of normalised embeddings. The closed form of
    /// [`TimSolver::Adm`] is that of [`Similarity::SquaredEuclidean`] alone.
    #[module(skip)]
    pub similarity: Similarity,
    /// Number of steps, at least 1.
    pub steps: usize,
    /// Learning rate, above 0, which [`TimSolver::Adm`] has no use for.
    pub rate: f64,
    /// Factor of the scores, above 0.
    pub temperature: f64,
    /// Weight `c` of the support's cross-entropy, above 0.
    pub cross_entropy: f64,
    /// Weight `m` of the entropy of the queries' mean prediction, at least 0.
    pub marginal_entropy: f64,
    /// Weight `h` of the mean entropy of the queries' predictions, at least 0.
    pub conditional_entropy: f64,
}

impl Tim {
    /// The paper's, lowered by `solver`.
    pub fn new(solver: TimSolver) -> Self {
        Self {
            solver,
            similarity: Similarity::SquaredEuclidean,
            steps: match solver {
                TimSolver::Gd => 1000,
                TimSolver::Adm => 150,
            },
            rate: 1e-4,
            temperature: 15.0,
            cross_entropy: 0.1,
            marginal_entropy: 1.0,
            conditional_entropy: 0.1,
        }
    }

    /// easyfsl's, with the settings of its constructor: 50 steps, a temperature of 10, and weights of
    /// 1, 1 and 0.1.
    pub fn easyfsl() -> Self {
        Self {
            similarity: Similarity::Cosine,
            steps: 50,
            temperature: 10.0,
            cross_entropy: 1.0,
            ..Self::new(TimSolver::Gd)
        }
    }

    fn check(&self) {
        let closed =
            self.similarity == Similarity::SquaredEuclidean || self.solver == TimSolver::Gd;
        assert!(closed, "TIM-ADM solves for squared distances, not for {:?}", self.similarity);
        some_steps(self.steps);
        positive("the weight of the cross-entropy", self.cross_entropy);
        let entropies = [self.marginal_entropy, self.conditional_entropy];
        not_negative("the weights of entropies", entropies);
    }

    /// Class weights `[t, ways, d]` for the `queries` `[t, q, d]`, of which there is at least one.
    pub fn class_weights<B: Backend>(
        &self,
        support: EmbeddedSupport<B>,
        queries: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        self.solve(support, queries).0
    }

    /// Class weights, and support and queries in one.
    fn solve<B: Backend>(
        &self,
        support: EmbeddedSupport<B>,
        queries: Tensor<B, 3>,
    ) -> (Tensor<B, 3>, Scored<B>) {
        self.check();
        let one_hot = support.one_hot();
        let seen = |embeddings: Tensor<B, 3>| match self.similarity {
            Similarity::Cosine => embeddings.detach(),
            _ => unit_length(embeddings.detach(), 2),
        };
        let support = support.with_embeddings(seen(support.embeddings.clone()));
        let start = support.prototypes();
        let all = Tensor::cat(vec![support.embeddings, seen(queries)], 1);
        let scored = Scored::new(self.similarity, self.temperature, all, &start);
        let weights = match self.solver {
            TimSolver::Gd => {
                let slopes = |logits| self.slopes(logits, &one_hot);
                scored.descended(start, (self.steps, self.rate), slopes)
            }
            TimSolver::Adm => self.alternate(start, &scored, one_hot),
        };
        (weights, scored)
    }

    /// Derivative of the loss by the logits of support and queries.
    fn slopes<B: Backend>(&self, logits: Tensor<B, 3>, one_hot: &Tensor<B, 3>) -> Tensor<B, 3> {
        let [support, queries] = split_at(logits, one_hot.dims()[1]);
        let labelled = cross_entropy_slopes(support, one_hot.clone()) * self.cross_entropy;
        let unlabelled = entropy_slopes(queries, self.marginal_entropy, self.conditional_entropy);
        Tensor::cat(vec![labelled, unlabelled], 1)
    }

    fn alternate<B: Backend>(
        &self,
        mut weights: Tensor<B, 3>,
        scored: &Scored<B>,
        one_hot: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let shots = one_hot.dims()[1];
        let support_share = self.cross_entropy / (1.0 + self.conditional_entropy);
        for _ in 0..self.steps {
            let logits = scored.logits(weights.clone());
            let query_share = shots as f64 / (logits.dims()[1] - shots) as f64;
            let [support, queries] = split_at(logits, shots);
            let targets =
                [one_hot.clone() * support_share, self.assigned(queries.clone()) * query_share];
            let shares = [softmax(support, 2) * support_share, softmax(queries, 2) * query_share];
            let [targets, shares] = [targets, shares].map(|parts| Tensor::cat(parts.to_vec(), 1));
            let [mass, old_mass] =
                [&targets, &shares].map(|parts| parts.clone().sum_dim(1).swap_dims(1, 2));
            weights = (scored.pull(targets - shares) + weights * old_mass) / mass;
        }
        weights
    }

    /// The distributions of queries of these logits.
    fn assigned<B: Backend>(&self, logits: Tensor<B, 3>) -> Tensor<B, 3> {
        let balance = self.marginal_entropy / (1.0 + self.marginal_entropy);
        let sharp = (log_softmax(logits, 2) * (1.0 + self.conditional_entropy)).exp();
        let sizes = sharp.clone().sum_dim(1).clamp_min(LEAST_SUM);
        let balanced = sharp / sizes.powf_scalar(balance);
        balanced.clone() / balanced.sum_dim(2)
    }
}

impl<B: Backend> Head<B> for Tim {
    const NAME: &'static str = "tim";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let head = self.clone();
        FittedHead::new(support.ways, move |queries| {
            let (weights, scored) = head.solve(support.clone(), queries);
            let [_, logits] = split_at(scored.logits(weights), support.labels.dims()[1]);
            logits
        })
    }

    fn transductive(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        match self.solver {
            TimSolver::Gd => "tim-gd",
            TimSolver::Adm => "tim-adm",
        }
    }

    fn settings(&self) -> Value {
        json!({
            "solver": self.solver,
            "similarity": self.similarity,
            "steps": self.steps,
            "rate": self.rate,
            "temperature": self.temperature,
            "weights": [self.cross_entropy, self.marginal_entropy, self.conditional_entropy],
        })
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
