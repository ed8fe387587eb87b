use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Metric, scores};
use serde::{Deserialize, Serialize};

use super::NoFormula;

/// The score that no formula has.
pub(super) const ROOTED: NoFormula = NoFormula("it scores by Euclidean distances");

/// Similarity of a query and the prototype of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrototypeScore {
    /// Minus the squared Euclidean distance.
    #[default]
    SquaredEuclidean,
    /// Minus the Euclidean distance itself; its gradient is zero where it is less than 1e-6.
    Euclidean,
    /// The cosine, zero for an embedding of zeros.
    Cosine,
}

impl PrototypeScore {
    /// The metric of the kernels that ranks prototypes in the same order.
    pub(super) fn metric(self) -> Metric {
        match self {
            Self::SquaredEuclidean | Self::Euclidean => Metric::SquaredEuclidean,
            Self::Cosine => Metric::Cosine,
        }
    }

    /// Scores `[t, q, ways]` of `queries` `[t, q, d]` and `prototypes` `[t, ways, d]`.
    pub(super) fn of<B: Backend>(
        self,
        queries: Tensor<B, 3>,
        prototypes: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match self {
            Self::SquaredEuclidean => scores(queries, prototypes, Metric::SquaredEuclidean),
            Self::Euclidean => {
                let squares = scores(queries, prototypes, Metric::SquaredEuclidean).neg();
                // Clamped before the root, whose derivative at zero is infinite.
                squares.clamp_min(1e-12).sqrt().neg()
            }
            Self::Cosine => scores(queries, prototypes, Metric::Cosine),
        }
    }
}
