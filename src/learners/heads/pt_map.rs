use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::positive;
use super::sinkhorn::Sinkhorn;
use super::unit_length::{length, shifted, unit_length};
use super::{EmbeddedSupport, FittedHead, Head};

/// Settings of the authors' code.
const SINKHORN: Sinkhorn = Sinkhorn { tolerance: 1e-6, iterations: 1000 };

/// Least length of an embedding of length 1 from which a mean is taken away: a shorter one is rounding.
const LEAST_LENGTH: f64 = 1e-6;

/// Transform of embeddings in [`PtMap`] after the powers.
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
    /// Transform after the powers.
    #[module(skip)]
    pub after_power: AfterPower,
}

impl PtMap {
    /// The head of the authors' code.
    pub fn new() -> Self {
        let after_power = AfterPower::Centred;
        Self { power: 0.5, lambda: 10.0, rate: 0.2, steps: 20, after_power }
    }

    /// The support or the queries of each task, `[t, n, d]`, as the method compares them.
    fn transform<B: Backend>(&self, embeddings: Tensor<B, 3>) -> Tensor<B, 3> {
        let base = relu(embeddings.detach()) + 1e-6;
        let powers = if self.power == 0.5 { base.sqrt() } else { base.powf_scalar(self.power) };
        match self.after_power {
            AfterPower::Nothing => powers,
            AfterPower::Centred => {
                let unit = unit_length(powers, 2);
                let centred = shifted(unit.clone(), unit.mean_dim(1).neg());
                centred.clone() / length(centred, 2).clamp_min(LEAST_LENGTH)
            }
        }
    }

    /// `log P` `[t, q, ways]` of transformed `queries` `[t, q, d]`.
    fn transported<B: Backend>(
        &self,
        support: &EmbeddedSupport<B>,
        queries: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let members = support.one_hot().swap_dims(1, 2);
        let ([tasks, ways, examples], count) = (members.dims(), queries.dims()[1]);
        let all = Tensor::cat(vec![support.embeddings.clone(), queries], 1);
        let products = product(all.clone(), all.swap_dims(1, 2));
        // Of prototypes that are sums of all embeddings with `weights` `[t, ways, n + q]`: `-lambda |q_j - p_k|²`,
        // up to the length of a query, a factor of its row that its mass divides out.
        let affinities = |weights: &Tensor<B, 3>| {
            let dots = product(weights.clone(), products.clone());
            let squares = (dots.clone() * weights.clone()).sum_dim(2);
            (dots.narrow(2, examples, count) * 2.0 - squares) * self.lambda
        };
        let means = |plan: Tensor<B, 3>| {
            let shares = Tensor::cat(vec![members.clone(), plan], 2);
            shares.clone() / shares.sum_dim(2)
        };
        let mut weights = means(Tensor::zeros([tasks, ways, count], &members.device()));
        for _ in 0..self.steps {
            let plan = SINKHORN.plan(affinities(&weights));
            weights = weights * (1.0 - self.rate) + means(plan) * self.rate;
        }
        SINKHORN.log_plan(affinities(&weights)).swap_dims(1, 2)
    }
}

impl Default for PtMap {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for PtMap {
    const NAME: &'static str = "pt-map";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        positive("a power", self.power);
        positive("lambda", self.lambda);
        let rate = self.rate;
        assert!((0.0..=1.0).contains(&rate), "a rate is from 0 to 1, found {rate}");
        let head = self.clone();
        let support = support.with_embeddings(head.transform(support.embeddings.clone()));
        FittedHead::new(support.ways, move |queries| {
            head.transported(&support, head.transform(queries))
        })
    }

    fn transductive(&self) -> bool {
        true
    }

    fn settings(&self) -> Value {
        json!(self)
    }
}
