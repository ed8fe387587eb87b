use burn::module::Module;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Metric, product, scores};
use serde_json::{Value, json};

use super::{EmbeddedSupport, FittedHead, Head};

/// Prototypical networks whose class means are refined by soft k-means on unlabelled embeddings.
///
/// From class means `p_k` on, `z_jk = softmax_k(-|q_j - p_k|²)` and
/// `p_k <- (sum of support of class k + sum_j z_jk q_j) / (its number + sum_j z_jk)`; logits are
/// `-|q - p_k|²`. They are differentiable by all embeddings.
///
/// # Conventions
/// The queries themselves are the unlabelled embeddings, where the paper draws others. One step, as
/// in the paper; with none it is a prototypical network. There is no cluster of distractors.
///
/// # Source
/// Ren et al., "Meta-Learning for Semi-Supervised Few-Shot Classification", ICLR 2018.
#[derive(Module, Clone, Debug)]
pub struct SoftKMeans {
    /// Number of refinements.
    pub steps: usize,
}

impl SoftKMeans {
    /// The paper's head, of one step.
    pub fn new() -> Self {
        Self { steps: 1 }
    }
}

impl Default for SoftKMeans {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for SoftKMeans {
    const NAME: &'static str = "soft-k-means";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let (steps, ways) = (self.steps, support.ways);
        let members = support.one_hot().swap_dims(1, 2);
        let counts = members.clone().sum_dim(2);
        let sums = product(members, support.embeddings.clone());
        let means = support.prototypes();
        FittedHead::new(ways, move |queries| {
            let logits = |prototypes| scores(queries.clone(), prototypes, Metric::SquaredEuclidean);
            let mut prototypes = means.clone();
            for _ in 0..steps {
                let assigned = softmax(logits(prototypes), 2).swap_dims(1, 2);
                let counts = counts.clone() + assigned.clone().sum_dim(2);
                prototypes = (sums.clone() + product(assigned, queries.clone())) / counts;
            }
            logits(prototypes)
        })
    }

    fn transductive(&self) -> bool {
        true
    }

    fn settings(&self) -> Value {
        json!({ "steps": self.steps })
    }
}
