use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Distribution, Tensor};
use fewshot_kernels::{linear, product, prototypes};
use serde_json::{Value, json};

use super::head::score_and_loss;
use super::{
    EmbeddedEpisode, EmbeddedSupport, FittedHead, Head, PrototypeScore, not_negative, one_hot,
    positive,
};

/// Score of what does not attend to each other.
const MASKED: f64 = -1e4;

/// Configuration of a [`Feat`].
#[derive(Config, Debug)]
pub struct FeatConfig {
    /// Features of an embedding.
    pub features: usize,
    /// Score of a query and an adapted prototype.
    #[config(default = "PrototypeScore::SquaredEuclidean")]
    pub score: PrototypeScore,
    /// Divisor of the scores, 64 in most of the authors' commands.
    #[config(default = 64.0)]
    pub temperature: f64,
    /// Weight of the contrastive loss in meta-training, 0.01 to 1 in the authors' commands.
    #[config(default = 0.1)]
    pub contrastive_weight: f64,
    /// Divisor of the scores of the contrastive loss.
    #[config(default = 64.0)]
    pub contrastive_temperature: f64,
}

impl FeatConfig {
    /// The head with weights drawn as in the authors' code.
    ///
    /// # Panics
    /// When there are no features, a temperature is not a positive number, or the weight of the
    /// contrastive loss is negative.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Feat<B> {
        let features = self.features;
        positive("the temperature of FEAT", self.temperature);
        positive("the contrastive temperature of FEAT", self.contrastive_temperature);
        not_negative("the weight of FEAT's contrastive loss", [self.contrastive_weight]);
        assert!(features > 0, "FEAT needs embeddings with features");
        let drawn = || {
            let normal = Distribution::Normal(0.0, (features as f64).sqrt().recip());
            Param::from_tensor(Tensor::random([features, features], normal, device))
        };
        Feat {
            query: drawn(),
            key: drawn(),
            value: drawn(),
            output: drawn(),
            bias: Param::from_tensor(Tensor::zeros([features], device)),
            norm: LayerNormConfig::new(features).init(device),
            config: self.clone(),
        }
    }
}

/// Prototypes that attend to each other before queries are compared with them.
///
/// `p'_k = LayerNorm(p_k + W_o sum_j a_kj W_v p_j + b)` with `a_k = softmax_j(<W_q p_k, W_k p_j> /
/// sqrt(d))` and `p_k` the class means; then `logit_k(q) = score(q, p'_k) / temperature`.
///
/// # Conventions
/// The squared Euclidean distance, as in the paper, and a temperature of 64, as in most of the
/// authors' commands. easyfsl takes the [distance itself](PrototypeScore::Euclidean) and a
/// temperature of 1. [`train_loss`](Head::train_loss) adds the contrastive loss, weighted by 0.1: all
/// embeddings of a class, support and queries, attend to each other, and each embedding is classified
/// by its score with the means of what comes out. In training, the authors also drop out a tenth of
/// the attention's weights and half of its results; that is left out here.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::{Distribution, Tensor}};
/// # use fewshot::learners::heads::{EmbeddedSupport, FeatConfig, Head};
/// # let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::random([1, 2, 8], Distribution::Default, &device);
/// let support = EmbeddedSupport::new(embeddings.clone(), Tensor::from_data([[0, 1]], &device), 2);
/// let logits = FeatConfig::new(8).init(&device).fit(support).logits(embeddings);
/// assert_eq!(logits.dims(), [1, 2, 2]);
/// ```
///
/// # Source
/// Ye, Hu, Zhan and Sha, "Few-Shot Learning via Embedding Adaptation with Set-to-Set Functions",
/// CVPR 2020.
#[derive(Module, Debug)]
pub struct Feat<B: Backend> {
    /// `W_q`, `[d, d]`, applied as `p W_q`: the transpose of PyTorch's, as are the other weights.
    pub query: Param<Tensor<B, 2>>,
    /// `W_k`, `[d, d]`.
    pub key: Param<Tensor<B, 2>>,
    /// `W_v`, `[d, d]`.
    pub value: Param<Tensor<B, 2>>,
    /// `W_o`, `[d, d]`.
    pub output: Param<Tensor<B, 2>>,
    /// `b`, `[d]`.
    pub bias: Param<Tensor<B, 1>>,
    /// Normalises adapted prototypes.
    pub norm: LayerNorm<B>,
    #[module(skip)]
    config: FeatConfig,
}

impl<B: Backend> Feat<B> {
    /// Adapts class means `[t, ways, d]` to each other.
    ///
    /// # Panics
    /// When the head was made for another number of features.
    pub fn adapted(&self, prototypes: Tensor<B, 3>) -> Tensor<B, 3> {
        self.attended(prototypes, None)
    }

    /// Prototypes, or embeddings, `[t, n, d]` after they attended to each other, except for the pairs
    /// that `excluded` `[t, n, n]` marks.
    fn attended(
        &self,
        prototypes: Tensor<B, 3>,
        excluded: Option<Tensor<B, 3, Bool>>,
    ) -> Tensor<B, 3> {
        let [tasks, ways, features] = prototypes.dims();
        let own = self.query.dims()[0];
        let dims = [tasks, ways, features];
        assert_eq!(own, features, "FEAT of {own} features does not take prototypes {dims:?}");
        let flat = prototypes.clone().reshape([tasks * ways, features]);
        let mapped = |weight: &Param<Tensor<B, 2>>| {
            linear(flat.clone(), weight.val(), None).reshape([tasks, ways, features])
        };
        let [query, key, value] = [&self.query, &self.key, &self.value].map(mapped);
        let scores = product(query, key.swap_dims(1, 2)) / (features as f64).sqrt();
        let scores = match excluded {
            Some(excluded) => scores.mask_fill(excluded, MASKED),
            None => scores,
        };
        let attended = product(softmax(scores, 2), value).reshape([tasks * ways, features]);
        let result = linear(attended, self.output.val(), Some(self.bias.val()));
        self.norm.forward(result.reshape([tasks, ways, features]) + prototypes)
    }
}

impl<B: Backend> Head<B> for Feat<B> {
    const NAME: &'static str = "feat";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let FeatConfig { score, temperature, .. } = self.config;
        let prototypes = self.attended(support.prototypes(), None);
        FittedHead::new(ways, move |queries| score.of(queries, prototypes.clone()) / temperature)
    }

    fn train_loss(&self, episode: EmbeddedEpisode<B>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        let (right, loss) = score_and_loss(self, episode.clone());
        let FeatConfig { score, contrastive_weight: weight, .. } = self.config;
        if weight == 0.0 {
            return (right, loss);
        }
        let EmbeddedEpisode { embeddings, labels, ways } = episode;
        let labels = Tensor::cat(labels.into(), 1);
        let members = one_hot(labels.clone(), ways);
        let excluded = product(members.clone(), members.swap_dims(1, 2)).equal_elem(0.0);
        let attended = self.attended(embeddings.clone(), Some(excluded));
        let centres = prototypes(attended, labels.clone(), ways);
        let scores = score.of(embeddings, centres) / self.config.contrastive_temperature;
        (right, loss + self.loss(scores, labels) * weight)
    }

    fn settings(&self) -> Value {
        json!(self.config)
    }
}
