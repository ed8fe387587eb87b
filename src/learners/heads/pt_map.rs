use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::positive;
use super::gram::{self, GramHead, TaskGram};
use super::sinkhorn::Sinkhorn;
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head};

/// That of the authors' code.
const SINKHORN: Sinkhorn = Sinkhorn { tolerance: 1e-6, iterations: 1000 };

/// What [`PtMap`] does to embeddings after the power transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterPower {
    /// Length 1, minus the mean of the task's support or queries, and length 1 again.
    Centred,
    /// Nothing.
    Nothing,
}

/// PT-MAP: powers of features, and prototypes drawn to the queries that optimal transport gives them.
///
/// Embeddings become `(relu(f) + 1e-6)^beta`, centred and of length 1. Then, `steps` times, queries
/// are assigned by the transport plan `P` of `exp(-lambda |q_j - p_k|²)`, in which each query has a
/// mass of 1 and all classes have equal mass, and `p_k <- p_k + rate (m_k - p_k)` with `m_k` the mean
/// of support and assigned queries. Logits are `log P` of the last prototypes.
///
/// # Conventions
/// The authors' code: `beta` 0.5, `lambda` 10, 20 steps at a rate of 0.2, Sinkhorn's iterations until
/// no mass changes by more than 1e-6, 1000 at most. Its QR decomposition changes no distance and is
/// left out. Prototypes are kept as weights of embeddings, whose products are taken once.
///
/// easyfsl 1.5 takes powers alone and 10 steps: `after_power: Nothing`, `steps: 10`. Where `q` is no
/// multiple of the ways, it rounds a class's mass down.
///
/// No gradient flows through this head.
///
/// # Source
/// Hu, Gripon and Pateux, "Leveraging the Feature Distribution in Transfer-based Few-Shot Learning",
/// ICANN 2021.
#[derive(Module, Clone, Debug, Serialize)]
pub struct PtMap {
    /// The exponent `beta`, above 0.
    pub power: f64,
    /// Factor of squared distances, above 0.
    pub lambda: f64,
    /// Share of the way to its mean that a prototype goes in a step, from 0 to 1.
    pub rate: f64,
    /// Steps of the prototypes.
    pub steps: usize,
    /// What follows the power transform.
    #[module(skip)]
    pub after_power: AfterPower,
}

impl PtMap {
    /// The head of the authors' code.
    pub fn new() -> Self {
        let after_power = AfterPower::Centred;
        Self { power: 0.5, lambda: 10.0, rate: 0.2, steps: 20, after_power }
    }

    /// `-lambda |q_j - p_k|²` `[ways, q]`, up to what is the same for all classes, of prototypes that are
    /// sums of all embeddings with `weights` `[ways, m]`.
    fn affinities(&self, gram: &TaskGram, weights: &[f32]) -> Vec<f64> {
        let sums = gram.sums(weights);
        let mut nearness = Vec::with_capacity(gram.ways() * gram.queries());
        for (dots, square) in sums.dots.chunks_exact(gram.size()).zip(sums.squares) {
            // The length of a query is a factor of its row, which its mass divides out.
            let near = |dot: &f32| self.lambda * f64::from(2.0 * dot - square);
            nearness.extend(dots[gram.labels().len()..].iter().map(near));
        }
        nearness
    }
}

impl Default for PtMap {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> GramHead<B> for PtMap {
    fn transform(&self, embeddings: Tensor<B, 2>) -> Tensor<B, 2> {
        positive("a power", self.power);
        let base = relu(embeddings) + 1e-6;
        let powers = if self.power == 0.5 { base.sqrt() } else { base.powf_scalar(self.power) };
        match self.after_power {
            AfterPower::Nothing => powers,
            AfterPower::Centred => unit_length(powers, 1),
        }
    }

    fn translation_invariant(&self) -> bool {
        self.after_power == AfterPower::Centred
    }

    fn gram_logits(&self, mut gram: TaskGram) -> Vec<f32> {
        positive("lambda", self.lambda);
        let rate = self.rate;
        assert!((0.0..=1.0).contains(&rate), "a rate is from 0 to 1, found {rate}");
        let (support, queries) = (gram.labels().len(), gram.queries());
        if self.after_power == AfterPower::Centred {
            let mut means = [vec![0.0; gram.size()], vec![0.0; gram.size()]];
            means[0][..support].fill(-1.0 / support as f32);
            means[1][support..].fill(-1.0 / queries as f32);
            gram = gram.translated([&means[0], &means[1]]).normalised();
        }
        let mut weights = gram.class_means();
        let mut class_sizes = vec![0.0; gram.ways()];
        gram.labels().iter().for_each(|&label| class_sizes[label] += 1.0);
        for _ in 0..self.steps {
            let plan = SINKHORN.plan(&self.affinities(&gram, &weights), gram.ways());
            let of_class = weights.chunks_exact_mut(gram.size()).zip(plan.chunks_exact(queries));
            for (class, (weights, plan)) in of_class.enumerate() {
                let mass = class_sizes[class] + plan.iter().sum::<f64>();
                let of_support = gram.labels().iter().map(|&label| f64::from(label == class));
                let of_all = of_support.chain(plan.iter().copied());
                for (weight, share) in weights.iter_mut().zip(of_all) {
                    *weight += (share / mass - f64::from(*weight)) as f32 * rate as f32;
                }
            }
        }
        let plan = SINKHORN.log_plan(&self.affinities(&gram, &weights), gram.ways());
        let logit = |at: usize| plan[at % gram.ways() * queries + at / gram.ways()] as f32;
        (0..plan.len()).map(logit).collect()
    }
}

impl<B: Backend> Head<B> for PtMap {
    const NAME: &'static str = "pt-map";

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
