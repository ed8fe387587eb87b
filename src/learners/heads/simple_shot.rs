use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::prototype_score::ROOTED;
use super::unit_length::{centred, fixed_mean, unit_length};
use super::{
    EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula, PrototypeScore,
};

/// Transform of embeddings in [`SimpleShot`] before it compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeatureTransform {
    /// Nothing: UN in the paper.
    #[serde(rename = "un")]
    Unchanged,
    /// Divides by the Euclidean length: L2N.
    #[serde(rename = "l2n")]
    Normalised,
    /// Subtracts the mean of the base classes, then divides by the length: CL2N.
    #[serde(rename = "cl2n")]
    CentredAndNormalised,
}

/// The nearest class mean, of embeddings that are centred and brought to length one.
///
/// `logit_k(q) = -||z(q) - c_k||^2`, with `z(x) = (x - m) / ||x - m||`, `m` the mean embedding of
/// all images of the base classes, and `c_k` the mean of `z(x)` over the support of class `k`.
///
/// # Conventions
/// CL2N where a base mean was given, and L2N otherwise. Class means are not normalised again, as in
/// the paper. easyfsl scores by the [cosine](PrototypeScore::Cosine) with class means of
/// [unchanged](FeatureTransform::Unchanged) embeddings.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, SimpleShot};
/// # let device = Default::default();
/// let head = SimpleShot::<Flex>::new().with_base_mean(Tensor::from_data([1.0, 1.0], &device));
/// let embeddings = Tensor::from_data([[[3.0, 1.0], [1.0, 9.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let logits = head.fit(support).logits(Tensor::from_data([[[6.0, 1.0]]], &device));
/// logits.into_data().assert_approx_eq::<f32>(&[[[0.0, -2.0]]].into(), Default::default());
/// ```
///
/// # Source
/// Wang, Chao, Weinberger and van der Maaten, "SimpleShot: Revisiting Nearest-Neighbor
/// Classification for Few-Shot Learning", arXiv 1911.04623, 2019.
#[derive(Module, Debug)]
pub struct SimpleShot<B: Backend> {
    /// Mean of the base classes, `[d]`; [`with_base_mean`](Self::with_base_mean) keeps it constant.
    pub base_mean: Option<Param<Tensor<B, 1>>>,
    /// Transform of embeddings; centring needs a base mean.
    #[module(skip)]
    pub transform: FeatureTransform,
    /// The score of transformed embeddings.
    #[module(skip)]
    pub score: PrototypeScore,
}

impl<B: Backend> SimpleShot<B> {
    /// The head on normalised embeddings, L2N.
    pub fn new() -> Self {
        Self {
            base_mean: None,
            transform: FeatureTransform::Normalised,
            score: PrototypeScore::SquaredEuclidean,
        }
    }

    /// The head on embeddings that are centred by the mean `[d]` of the base classes and normalised, CL2N.
    pub fn with_base_mean(self, mean: Tensor<B, 1>) -> Self {
        let transform = FeatureTransform::CentredAndNormalised;
        Self { base_mean: Some(fixed_mean(mean)), transform, ..self }
    }

    /// Mean to subtract from embeddings, `[1, 1, d]`.
    fn centre(&self) -> Option<Tensor<B, 1>> {
        let centred = self.transform == FeatureTransform::CentredAndNormalised;
        let fits = !centred || self.base_mean.is_some();
        assert!(fits, "CL2N centres embeddings by a base mean: give it first");
        self.base_mean.as_ref().filter(|_| centred).map(Param::val)
    }
}

impl<B: Backend> Default for SimpleShot<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for SimpleShot<B> {
    const NAME: &'static str = "simpleshot";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let (transform, centre, score) = (self.transform, self.centre(), self.score);
        let transformed = move |x| {
            let centred = centred(x, centre.clone());
            if transform == FeatureTransform::Unchanged { centred } else { unit_length(centred, 2) }
        };
        let prototypes =
            support.with_embeddings(transformed(support.embeddings.clone())).prototypes();
        FittedHead::new(ways, move |queries| score.of(transformed(queries), prototypes.clone()))
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let lengths = match self.transform {
            FeatureTransform::Unchanged => LengthNormalisation::Given,
            FeatureTransform::Normalised => LengthNormalisation::Unit,
            FeatureTransform::CentredAndNormalised => {
                return Err(NoFormula("it centres embeddings by a base mean"));
            }
        };
        let embeddings = lengths.of(support.embeddings.clone());
        let prototypes = support.with_embeddings(embeddings).prototypes();
        match self.score {
            PrototypeScore::SquaredEuclidean => {
                Ok(LogitFormula::squared_distances(lengths, prototypes, 1.0))
            }
            PrototypeScore::Cosine => {
                let weights = unit_length(prototypes, 2).swap_dims(1, 2);
                Ok(LogitFormula::products(LengthNormalisation::Unit, weights))
            }
            PrototypeScore::Euclidean => Err(ROOTED),
        }
    }

    fn settings(&self) -> Value {
        json!({ "transform": self.transform, "score": self.score })
    }
}
