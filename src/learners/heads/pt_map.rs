use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sinkhorn::Sinkhorn;
use super::unit_length::unit_length;
use super::{EmbeddedSupport, TransductiveHead, no_logits};

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
/// are assigned by the transport plan `P` of `exp(-lambda |q_j - p_k|²)`, in which each has a mass of 1
/// and every class the same, and `p_k <- p_k + rate (m_k - p_k)` with `m_k` the mean of support and
/// assigned queries. Logits are `log P` of the last prototypes.
///
/// # Shapes
/// Support `[t, n, d]` and queries `[t, q, d]` give logits `[t, q, ways]`.
///
/// # Conventions
/// The authors' code: `beta` 0.5, `lambda` 10, 20 steps at a rate of 0.2, Sinkhorn's iterations until
/// no mass changes by more than 1e-6, 1000 at most. Its QR decomposition changes no distance and is
/// left out. Prototypes are kept as weights of embeddings, whose products are taken once.
///
/// easyfsl 1.5 takes powers alone and 10 steps: [`with_after_power`](Self::with_after_power) and
/// [`with_steps`](Self::with_steps). Where `q` is no multiple of the ways, it rounds a class's mass
/// down.
///
/// No gradient flows through this head.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot::learners::heads::{EmbeddedSupport, PtMap, TransductiveHead};
///
/// let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_data([[[1.0, 0.0], [0.0, 1.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let queries = Tensor::from_data([[[3.0, 1.0], [1.0, 2.0]]], &device);
/// let classes = PtMap::new().logits(support, queries).argmax(2);
/// assert_eq!(classes.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1]);
/// ```
///
/// # Source
/// Hu, Gripon and Pateux, "Leveraging the Feature Distribution in Transfer-based Few-Shot Learning",
/// ICANN 2021.
#[derive(Module, Clone, Debug)]
pub struct PtMap {
    power: f64,
    lambda: f64,
    rate: f64,
    steps: usize,
    #[module(skip)]
    after_power: AfterPower,
}

impl PtMap {
    /// The head of the authors' code.
    pub fn new() -> Self {
        let after_power = AfterPower::Centred;
        Self { power: 0.5, lambda: 10.0, rate: 0.2, steps: 20, after_power }
    }

    /// With another exponent `beta`.
    ///
    /// # Panics
    /// Unless it is finite and above 0.
    pub fn with_power(self, power: f64) -> Self {
        assert!(power.is_finite() && power > 0.0, "a power is above 0, found {power}");
        Self { power, ..self }
    }

    /// With another factor of squared distances.
    ///
    /// # Panics
    /// Unless it is finite and above 0.
    pub fn with_lambda(self, lambda: f64) -> Self {
        assert!(lambda.is_finite() && lambda > 0.0, "lambda is above 0, found {lambda}");
        Self { lambda, ..self }
    }

    /// With another number of moves of prototypes, and another part of the way that each goes.
    ///
    /// # Panics
    /// Unless the rate is from 0 to 1.
    pub fn with_steps(self, steps: usize, rate: f64) -> Self {
        assert!((0.0..=1.0).contains(&rate), "a rate is from 0 to 1, found {rate}");
        Self { steps, rate, ..self }
    }

    /// With something else after the power transform.
    pub fn with_after_power(self, after_power: AfterPower) -> Self {
        Self { after_power, ..self }
    }

    fn prepared<B: Backend>(&self, embeddings: Tensor<B, 3>) -> Tensor<B, 3> {
        let positive = relu(embeddings.detach()) + 1e-6;
        let powers =
            if self.power == 0.5 { positive.sqrt() } else { positive.powf_scalar(self.power) };
        match self.after_power {
            AfterPower::Nothing => powers,
            AfterPower::Centred => {
                let units = unit_length(powers, 2);
                let mean = units.clone().mean_dim(1);
                unit_length(units - mean, 2)
            }
        }
    }

    /// `log P` `[ways, t, q]` for prototypes that are sums of all embeddings with weights
    /// `[t, ways, n + q]`, given the embeddings' products `[t, n + q, n + q]`.
    fn assigned<B: Backend>(
        &self,
        weights: Tensor<B, 3>,
        products: Tensor<B, 3>,
        queries: usize,
    ) -> Tensor<B, 3> {
        let all = weights.dims()[2];
        let dots = product(weights.clone(), products);
        let squares = (dots.clone() * weights).sum_dim(2);
        // The length of a query is a factor of its row, which its mass divides out.
        let nearness = (dots.narrow(2, all - queries, queries) * 2.0 - squares) * self.lambda;
        let sinkhorn = Sinkhorn { tolerance: 1e-6, iterations: 1000 };
        sinkhorn.log_plan(nearness.swap_dims(0, 1))
    }
}

impl Default for PtMap {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> TransductiveHead<B> for PtMap {
    fn logits(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        if let Some(none) = no_logits(&queries, support.ways) {
            return none;
        }
        let [tasks, count, _] = queries.dims();
        let members = support.one_hot().swap_dims(1, 2);
        let ways = support.ways;
        let rows = [support.embeddings, queries].map(|embeddings| self.prepared(embeddings));
        let rows = Tensor::cat(rows.into(), 1);
        let products = product(rows.clone(), rows.swap_dims(1, 2));
        let means = |of_queries: Tensor<B, 3>| {
            let all = Tensor::cat(vec![members.clone(), of_queries], 2);
            all.clone() / all.sum_dim(2)
        };
        let mut weights = means(Tensor::zeros([tasks, ways, count], &products.device()));
        for _ in 0..self.steps {
            let plan = self.assigned(weights.clone(), products.clone(), count).exp();
            weights = weights.clone() + (means(plan.swap_dims(0, 1)) - weights) * self.rate;
        }
        self.assigned(weights, products, count).permute([1, 2, 0])
    }

    fn name(&self) -> &'static str {
        "pt-map"
    }

    fn settings(&self) -> Value {
        json!({
            "power": self.power,
            "lambda": self.lambda,
            "rate": self.rate,
            "steps": self.steps,
            "after_power": self.after_power,
        })
    }
}
