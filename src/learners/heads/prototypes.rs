use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{EpisodeProtoLoss, episode_proto_loss};
use serde_json::{Value, json};

use super::checked::positive;
use super::head::score_and_loss;
use super::prototype_score::ROOTED;
use super::unit_length::unit_length;
use super::{
    EmbeddedEpisode, EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula,
    NoFormula, PrototypeScore,
};

/// A query belongs to the class whose mean embedding is nearest.
///
/// `p(y = k | q) = softmax_k(scale * score(q, c_k))`, with `c_k` the mean of the embeddings of
/// class `k`.
///
/// # Conventions
/// The squared Euclidean distance and a scale of 1, as in the paper. easyfsl takes the
/// [distance itself](PrototypeScore::Euclidean). [Cosines](PrototypeScore::Cosine) span only -1 to
/// 1, so a softmax over them wants a scale of about 10.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, Prototypes};
/// # let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_data([[[0.0, 0.0], [4.0, 2.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let logits = Prototypes::new().fit(support).logits(Tensor::from_data([[[1.0, 0.0]]], &device));
/// assert_eq!(logits.into_data().to_vec::<f32>().unwrap(), [-1.0, -13.0]);
/// ```
///
/// # Source
/// Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning", NeurIPS 2017.
#[derive(Module, Clone, Debug)]
pub struct Prototypes {
    /// Similarity of a query and a class mean.
    #[module(skip)]
    pub score: PrototypeScore,
    /// Factor of the scores, above 0.
    pub scale: f64,
}

impl Prototypes {
    /// The paper's head.
    pub fn new() -> Self {
        Self { score: PrototypeScore::SquaredEuclidean, scale: 1.0 }
    }
}

impl Default for Prototypes {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for Prototypes {
    const NAME: &'static str = "prototypes";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        positive("the scale", self.scale);
        let ways = support.ways;
        let (score, scale, prototypes) = (self.score, self.scale, support.prototypes());
        FittedHead::new(ways, move |queries| {
            let logits = score.of(queries, prototypes.clone());
            if scale == 1.0 { logits } else { logits * scale }
        })
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        positive("the scale", self.scale);
        let prototypes = support.prototypes();
        match self.score {
            PrototypeScore::SquaredEuclidean => Ok(LogitFormula::squared_distances(
                LengthNormalisation::Given,
                prototypes,
                self.scale,
            )),
            PrototypeScore::Cosine => {
                let weights = unit_length(prototypes, 2).swap_dims(1, 2) * self.scale;
                Ok(LogitFormula::products(LengthNormalisation::Unit, weights))
            }
            PrototypeScore::Euclidean => Err(ROOTED),
        }
    }

    /// All in one pass, but for the Euclidean distance.
    fn train_loss(&self, episode: EmbeddedEpisode<B>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        if self.score == PrototypeScore::Euclidean {
            return score_and_loss(self, episode);
        }
        positive("the scale", self.scale);
        let EmbeddedEpisode { embeddings, labels, ways } = episode;
        let EpisodeProtoLoss { loss, accuracy } =
            episode_proto_loss(embeddings, labels, ways, self.score.metric(), self.scale);
        (accuracy, loss)
    }

    fn settings(&self) -> Value {
        json!({ "score": self.score, "scale": self.scale })
    }

    fn architecture(&self, encoder: &str) -> String {
        let score = match self.score {
            PrototypeScore::Euclidean => "euclidean".to_owned(),
            score => score.metric().to_string(),
        };
        format!("protonet({score}, scale {}, {encoder})", self.scale)
    }
}
