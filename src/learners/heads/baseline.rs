use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde_json::{Value, json};

use super::sgd::Sgd;
use super::slopes::cross_entropy_slopes;
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// Baseline: a linear layer, trained on the support with cross-entropy.
///
/// `p(y = k | x) = softmax_k(x · w_k + b_k)`
///
/// # Conventions
/// - Every one of 100 steps sees the whole support. The authors' code takes `100 ceil(n / 4)` steps of
///   mini-batches of 4, whose gradients are the same in the mean; a drawn order would make the result
///   depend on a seed.
/// - Weights and biases start at zero. The loss is strictly convex because of its weight decay, so
///   the start decides only how near a fixed number of steps comes to the minimum; zero prefers no
///   class. The authors' start is drawn uniformly within `1 / sqrt(d)` of zero.
/// - Weight decay pulls on the biases as well, as in the authors' code.
/// - Embeddings are taken as they are. The fit sends no gradient back to those of the support.
///
/// # Source
/// Chen, Liu, Kira, Wang and Huang, "A Closer Look at Few-shot Classification", ICLR 2019.
#[derive(Module, Clone, Debug, Default)]
pub struct Baseline {
    /// Training of the layer.
    pub sgd: Sgd,
}

impl Baseline {
    /// The paper's, with the settings of its code.
    pub fn new() -> Self {
        Self::default()
    }

    /// Weights `[t, ways, d]` and biases `[t, ways]` after the training.
    pub fn layer<B: Backend>(&self, support: EmbeddedSupport<B>) -> (Tensor<B, 3>, Tensor<B, 2>) {
        // The gradient by w_k is Σ_i (p_ik - y_ik) x_i / n, and that by b_k the same with a feature
        // that is always 1. From zero, the layer stays a sum of embeddings, w_k = Σ_i a_ik x_i and
        // b_k = Σ_i a_ik, and steps of a by (p - y) / n are exactly the steps of w and b. They need
        // no more than the products of the support with itself, which are few.
        let x = support.embeddings.clone().detach();
        let one_hot = support.one_hot();
        let products = product(x.clone(), x.clone().swap_dims(1, 2)) + 1.0;
        let mut shares = one_hot.zeros_like();
        let mut descent = self.sgd.descent();
        for _ in 0..self.sgd.steps {
            let logits = product(products.clone(), shares.clone());
            shares = descent.step(shares, cross_entropy_slopes(logits, one_hot.clone()));
        }
        let biases = shares.clone().sum_dim(1).squeeze_dim(1);
        (product(shares.swap_dims(1, 2), x), biases)
    }
}

impl<B: Backend> Head<B> for Baseline {
    const NAME: &'static str = "baseline";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let (weights, biases) = self.layer(support);
        let weights = weights.swap_dims(1, 2);
        let biases = biases.unsqueeze_dim::<3>(1);
        FittedHead::new(ways, move |queries| product(queries, weights.clone()) + biases.clone())
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let (weights, biases) = self.layer(support);
        let (weights, biases) = (weights.swap_dims(1, 2), biases.unsqueeze_dim::<3>(1));
        Ok(LogitFormula::linear(LengthNormalisation::Given, weights, biases))
    }

    fn settings(&self) -> Value {
        json!({ "sgd": self.sgd })
    }
}
