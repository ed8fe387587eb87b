use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::shifted::{LengthNormalisation, Shifted};
use super::unit_length::unit_length;
use super::{EmbeddedSupport, TransductiveHead, no_logits, one_hot};

/// Weights from `exp(-2 s)` to 1 are numbers above 0 in f32.
pub(super) const MOST_SCALE: f64 = 40.0;

/// Which queries are compared with prototypes in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoredQueries {
    /// Those moved onto the support, by which prototypes are rectified too.
    Shifted,
    /// Those before the shift.
    Unshifted,
}

/// How much embeddings count in the rectified prototype of their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RectificationWeights {
    /// A softmax of scaled cosines over all embeddings of the class: BD-CSPN.
    WithinClass,
    /// A softmax of scaled cosines over all classes, in a plain mean: LaplacianShot's authors' code.
    OverClasses,
}

/// BD-CSPN: class means drawn towards the queries that seem to belong to them.
///
/// Queries are moved by `mean(S) - mean(Q)`, and each gets the nearest prototype `p_k` as its label.
/// Prototypes become `p'_k = sum_i w_ik x_i` over support and queries of class `k`, with
/// `w_ik = exp(s cos(x_i, p_k)) / sum_j exp(s cos(x_j, p_k))`, and logits are `s cos(x, p'_k)`.
///
/// # Shapes
/// Support `[t, n, d]` and queries `[t, q, d]` give logits `[t, q, ways]`.
///
/// # Conventions
/// Embeddings have length 1, the shifted queries are scored and `s` is 10. Every query counts in its
/// class, where the paper takes the most confident ones of each class alone. easyfsl 1.5 leaves
/// lengths as they are, scores queries before the shift, and has `s = 1`:
/// [`with_lengths`](Self::with_lengths), [`with_scored`](Self::with_scored) and
/// [`with_scale`](Self::with_scale).
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot::learners::heads::{BdCspn, EmbeddedSupport, TransductiveHead};
///
/// let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_data([[[1.0, 0.0], [0.0, 1.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let queries = Tensor::from_data([[[3.0, 1.0], [1.0, 2.0]]], &device);
/// let classes = BdCspn::new().logits(support, queries).argmax(2);
/// assert_eq!(classes.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1]);
/// ```
///
/// # Source
/// Liu, Song and Qin, "Prototype Rectification for Few-Shot Learning", ECCV 2020.
#[derive(Module, Clone, Debug)]
pub struct BdCspn {
    scale: f64,
    #[module(skip)]
    lengths: LengthNormalisation,
    #[module(skip)]
    scored: ScoredQueries,
}

impl BdCspn {
    /// The paper's head.
    pub fn new() -> Self {
        Self { scale: 10.0, lengths: LengthNormalisation::Unit, scored: ScoredQueries::Shifted }
    }

    /// With another factor of the cosines, both in weights and in logits.
    ///
    /// # Panics
    /// Unless it is above 0 and up to 40.
    pub fn with_scale(self, scale: f64) -> Self {
        assert!(
            scale > 0.0 && scale <= MOST_SCALE,
            "a scale is above 0 and up to 40, found {scale}"
        );
        Self { scale, ..self }
    }

    /// With embeddings of length 1 or as they are.
    pub fn with_lengths(self, lengths: LengthNormalisation) -> Self {
        Self { lengths, ..self }
    }

    /// With other queries to score.
    pub fn with_scored(self, scored: ScoredQueries) -> Self {
        Self { scored, ..self }
    }
}

impl Default for BdCspn {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> TransductiveHead<B> for BdCspn {
    fn logits(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        if let Some(none) = no_logits(&queries, support.ways) {
            return none;
        }
        let (support, queries) = Shifted::new(support, queries, self.lengths);
        let prototypes =
            rectified(&support, &queries, RectificationWeights::WithinClass, self.scale);
        let queries = match self.scored {
            ScoredQueries::Shifted => queries,
            ScoredQueries::Unshifted => queries.unshifted(),
        };
        queries.cosines(prototypes) * self.scale
    }

    fn name(&self) -> &'static str {
        "bd-cspn"
    }

    fn settings(&self) -> Value {
        json!({ "scale": self.scale, "lengths": self.lengths, "scored": self.scored })
    }
}

/// Means of support and pseudo-labelled queries, `[t, ways, d]`.
pub(super) fn rectified<B: Backend>(
    support: &EmbeddedSupport<B>,
    queries: &Shifted<B>,
    weights: RectificationWeights,
    scale: f64,
) -> Tensor<B, 3> {
    let prototypes = unit_length(support.prototypes(), 2);
    let units = unit_length(support.embeddings.clone(), 2);
    let of_support = product(units, prototypes.clone().swap_dims(1, 2));
    let of_queries = queries.cosines(prototypes);
    let members = support.one_hot();
    let pseudo = one_hot(of_queries.clone().argmax(2).squeeze_dim(2), support.ways);
    let weigh = |cosines: Tensor<B, 3>, members: Tensor<B, 3>| match weights {
        RectificationWeights::WithinClass => ((cosines - 1.0) * scale).exp() * members,
        RectificationWeights::OverClasses => softmax(cosines * scale, 2) * members,
    };
    let of_support = weigh(of_support, members.clone());
    let of_queries = weigh(of_queries, pseudo.clone());
    let totals = match weights {
        RectificationWeights::WithinClass => {
            of_support.clone().sum_dim(1) + of_queries.clone().sum_dim(1)
        }
        RectificationWeights::OverClasses => members.sum_dim(1) + pseudo.sum_dim(1),
    };
    let sums = product(of_support.swap_dims(1, 2), support.embeddings.clone());
    (sums + queries.sums(of_queries)) / totals.swap_dims(1, 2)
}
