//! Class means drawn towards the queries, for BD-CSPN and LaplacianShot.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Metric, product, scores, split_at};
use serde::{Deserialize, Serialize};

use super::EmbeddedSupport;
use super::unit_length::{shifted, unit_length};
use crate::episode::one_hot;

/// Weights from `exp(-2 s)` to 1 are numbers above 0 in f32.
const MOST_SCALE: f64 = 40.0;

/// Lengths of embeddings, on which all that a head does is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthNormalisation {
    /// All embeddings are brought to length 1.
    Unit,
    /// Embeddings stay as they are.
    Given,
}

impl LengthNormalisation {
    /// `embeddings` `[n, d]` as the head sees them.
    pub(super) fn of<B: Backend, const D: usize>(self, embeddings: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Unit => unit_length(embeddings, D - 1),
            Self::Given => embeddings,
        }
    }
}

/// Queries that are compared with the rectified prototypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoredQueries {
    /// The queries after the shift onto the support, by which prototypes are rectified too.
    Shifted,
    /// The queries before the shift.
    Unshifted,
}

/// Weights of embeddings in the rectified prototype of their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RectificationWeights {
    /// A softmax of scaled cosines over all embeddings of the class: BD-CSPN.
    WithinClass,
    /// A softmax of scaled cosines over all classes, in a plain mean: LaplacianShot's authors' code.
    OverClasses,
}

/// Rectified prototypes of a task, whose queries are moved by `mean(S) - mean(Q)`: weighted means of the
/// support and of the queries, each of which counts in the class with the nearest mean.
pub(super) struct Rectified<B: Backend> {
    /// Moved queries `[t, q, d]`.
    pub moved: Tensor<B, 3>,
    /// Queries `[t, q, d]` to compare with the prototypes.
    pub scored: Tensor<B, 3>,
    /// Prototypes `[t, ways, d]`.
    pub prototypes: Tensor<B, 3>,
}

impl<B: Backend> Rectified<B> {
    /// Prototypes of `support`, rectified by `queries` `[t, q, d]`.
    ///
    /// # Panics
    /// Unless `scale`, the factor of the cosines, is above 0 and up to 40.
    pub fn new(
        support: &EmbeddedSupport<B>,
        queries: Tensor<B, 3>,
        weights: RectificationWeights,
        scale: f64,
        scored: ScoredQueries,
    ) -> Self {
        let fits = scale > 0.0 && scale <= MOST_SCALE;
        assert!(fits, "a scale is above 0 and up to 40, found {scale}");
        let examples = support.embeddings.clone();
        let shift = examples.clone().mean_dim(1) - queries.clone().mean_dim(1);
        let moved = shifted(queries.clone(), shift);
        let means = support.prototypes();
        let cosines = [&examples, &moved].map(|x| scores(x.clone(), means.clone(), Metric::Cosine));
        let [tasks, count, _] = moved.dims();
        let nearest = cosines[1].clone().argmax(2).reshape([tasks, count]);
        let members = [support.one_hot(), one_hot(nearest, support.ways)].to_vec();
        let shares =
            weights.shares(Tensor::cat(cosines.to_vec(), 1), Tensor::cat(members, 1), scale);
        let [of_support, of_queries] =
            split_at(shares, examples.dims()[1]).map(|shares| shares.swap_dims(1, 2));
        let prototypes = product(of_support, examples) + product(of_queries, moved.clone());
        let scored = match scored {
            ScoredQueries::Shifted => moved.clone(),
            ScoredQueries::Unshifted => queries,
        };
        Self { moved, scored, prototypes }
    }
}

impl RectificationWeights {
    /// Weights of all embeddings in all prototypes, of their cosines with the class means and of 1 at the class
    /// of each and 0 elsewhere, all `[t, n, ways]`.
    fn shares<B: Backend>(
        self,
        cosines: Tensor<B, 3>,
        members: Tensor<B, 3>,
        scale: f64,
    ) -> Tensor<B, 3> {
        let (weights, totals) = match self {
            Self::WithinClass => {
                let weights = ((cosines - 1.0) * scale).exp() * members;
                (weights.clone(), weights)
            }
            Self::OverClasses => (softmax(cosines * scale, 2) * members.clone(), members),
        };
        weights / totals.sum_dim(1)
    }
}
