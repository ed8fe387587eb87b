use burn::module::Module;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Metric, scores};
use serde_json::{Value, json};

use super::rectification::{LengthNormalisation, RectificationWeights, Rectified, ScoredQueries};
use super::{EmbeddedSupport, FittedHead, Head};

/// BD-CSPN: class means drawn towards the queries that seem to belong to them.
///
/// Queries are moved by `mean(S) - mean(Q)`, and each gets the nearest prototype `p_k` as its label.
/// Prototypes become `p'_k = sum_i w_ik x_i` over support and queries of class `k`, with
/// `w_ik = exp(s cos(x_i, p_k)) / sum_j exp(s cos(x_j, p_k))`, and logits are `s cos(x, p'_k)`.
///
/// # Conventions
/// Embeddings have length 1, the shifted queries are scored and `s` is 10. All queries of a class
/// count, whereas the paper takes only the most confident ones of each class. easyfsl 1.5 leaves
/// lengths as they are, scores queries before the shift, and has `s = 1`: `lengths: Given`,
/// `scored: Unshifted`, `scale: 1.0`.
///
/// No gradient flows through this head.
///
/// # Source
/// Liu, Song and Qin, "Prototype Rectification for Few-Shot Learning", ECCV 2020.
#[derive(Module, Clone, Debug)]
pub struct BdCspn {
    /// `s`, the factor of the cosines both in weights and in logits, above 0 and up to 40.
    pub scale: f64,
    /// Lengths of the embeddings.
    #[module(skip)]
    pub lengths: LengthNormalisation,
    /// Queries that are compared with rectified prototypes.
    #[module(skip)]
    pub scored: ScoredQueries,
}

impl BdCspn {
    /// The paper's head.
    pub fn new() -> Self {
        Self { scale: 10.0, lengths: LengthNormalisation::Unit, scored: ScoredQueries::Shifted }
    }
}

impl Default for BdCspn {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for BdCspn {
    const NAME: &'static str = "bd-cspn";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let Self { scale, lengths, scored } = *self;
        let embeddings = lengths.of(support.embeddings.clone().detach());
        let support = support.with_embeddings(embeddings);
        FittedHead::new(support.ways, move |queries| {
            let (queries, weights) =
                (lengths.of(queries.detach()), RectificationWeights::WithinClass);
            let rectified = Rectified::new(&support, queries, weights, scale, scored);
            let cosines = scores(rectified.scored, rectified.prototypes, Metric::Cosine);
            // Rounding leaves cosines a little above 1.
            cosines.clamp(-1.0, 1.0) * scale
        })
    }

    fn transductive(&self) -> bool {
        true
    }

    fn settings(&self) -> Value {
        json!({ "scale": self.scale, "lengths": self.lengths, "scored": self.scored })
    }
}
