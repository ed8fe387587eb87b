use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;
use fewshot_kernels::split_at;
use serde::Serialize;
use serde_json::{Value, json};

use super::checked::{not_negative, positive, some_steps};
use super::similarity::{Scored, Similarity};
use super::slopes::{cross_entropy_slopes, entropy_slopes};
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head};

/// Least sum of a class over all queries, which something is divided by.
const LEAST_SUM: f64 = 1e-30;

/// How the loss of [`Tim`] is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, Tim, TimSolver};
/// # let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_floats([[[1.0, 0.0], [0.0, 1.0]]], &device);
/// let labels = Tensor::from_ints([[0, 1]], &device);
/// let support = EmbeddedSupport::new(embeddings.clone(), labels, 2);
/// let classes = Tim::new(TimSolver::Adm).logits(support, embeddings).argmax(2);
/// assert_eq!(classes.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1]);
/// ```
///
/// # Source
/// Boudiaf, Masud, Rony, Dolz, Piantanida and Ben Ayed, "Transductive Information Maximization For
/// Few-Shot Learning", NeurIPS 2020.
#[derive(Module, Clone, Debug)]
pub struct Tim {
    #[module(skip)]
    solver: TimSolver,
    #[module(skip)]
    similarity: Similarity,
    steps: usize,
    rate: f64,
    temperature: f64,
    cross_entropy: f64,
    marginal_entropy: f64,
    conditional_entropy: f64,
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
        Self::new(TimSolver::Gd)
            .with_similarity(Similarity::Cosine)
            .with_steps(50)
            .with_temperature(10.0)
            .with_weights(1.0, 1.0, 0.1)
    }

    /// With another score; all but the cosine are of normalised embeddings.
    ///
    /// # Panics
    /// With [`TimSolver::Adm`], whose closed form is that of [`Similarity::SquaredEuclidean`].
    pub fn with_similarity(self, similarity: Similarity) -> Self {
        let closed = similarity == Similarity::SquaredEuclidean || self.solver == TimSolver::Gd;
        assert!(closed, "TIM-ADM solves for squared distances, not for {similarity:?}");
        Self { similarity, ..self }
    }

    /// In another number of steps.
    ///
    /// # Panics
    /// If it is zero.
    pub fn with_steps(self, steps: usize) -> Self {
        Self { steps: some_steps(steps), ..self }
    }

    /// With another learning rate, which [`TimSolver::Adm`] has no use for.
    ///
    /// # Panics
    /// If it is not positive.
    pub fn with_rate(self, rate: f64) -> Self {
        Self { rate: positive("the learning rate", rate), ..self }
    }

    /// With another factor before the scores.
    ///
    /// # Panics
    /// If it is not positive.
    pub fn with_temperature(self, temperature: f64) -> Self {
        Self { temperature: positive("the temperature", temperature), ..self }
    }

    /// With other weights of the terms of the loss: `c`, `m` and `h`.
    ///
    /// # Panics
    /// If the first is not positive, or another is negative.
    pub fn with_weights(
        self,
        cross_entropy: f64,
        marginal_entropy: f64,
        conditional_entropy: f64,
    ) -> Self {
        let cross_entropy = positive("the weight of the cross-entropy", cross_entropy);
        not_negative("the weights of entropies", [marginal_entropy, conditional_entropy]);
        Self { cross_entropy, marginal_entropy, conditional_entropy, ..self }
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
        let of_support = self.cross_entropy / (1.0 + self.conditional_entropy);
        for _ in 0..self.steps {
            let logits = scored.logits(weights.clone());
            let of_queries = shots as f64 / (logits.dims()[1] - shots) as f64;
            let [support, queries] = split_at(logits, shots);
            let wanted =
                [one_hot.clone() * of_support, self.assigned(queries.clone()) * of_queries];
            let found = [softmax(support, 2) * of_support, softmax(queries, 2) * of_queries];
            let [wanted, found] = [wanted, found].map(|parts| Tensor::cat(parts.to_vec(), 1));
            let [mass, kept] =
                [&wanted, &found].map(|shares| shares.clone().sum_dim(1).swap_dims(1, 2));
            weights = (scored.pull(wanted - found) + weights * kept) / mass;
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
