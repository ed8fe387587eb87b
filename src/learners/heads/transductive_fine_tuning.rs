use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::some_steps;
use super::descent::Descent;
use super::similarity::{Scored, Similarity};
use super::slopes::{cross_entropy_slopes, entropy_slopes};
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head};

/// Order in which the two terms of the loss are lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntropyUpdate {
    /// A step down the cross-entropy, then one down the entropy, of one optimizer.
    InTurn,
    /// One step down their sum.
    Joint,
}

/// Transductive fine-tuning: a classifier that Adam moves down the cross-entropy of the support and
/// the entropy of its predictions for the queries.
///
/// `loss = mean_support -ln p(y_i | x_i) + mean_queries H(p(· | x_j))`, with
/// `p(y = k | x) = softmax_k(temperature * s(x, w_k))`
///
/// # Conventions
/// - The paper fine-tunes the whole network; here the embeddings stay, and the classifier alone moves.
///   Each of 25 epochs is a step for each term, as in the authors' code, and weights start as the
///   normalised class means. The rate is the authors' 0.00005: minimising entropies without a term that
///   balances classes can send all queries to one class at larger ones. Scores are cosines times TIM's
///   temperature of 15.
/// - The authors' layer is that of [`published`](Self::published): linear on normalised embeddings
///   ([`Similarity::Dot`]) with biases that start at zero, so that it starts with cosines, at a temperature
///   of 1. They embed by the ReLU of the logits of the training classes.
/// - easyfsl has [`Similarity::Euclidean`] from the class means as they are and
///   [`EntropyUpdate::Joint`]: [`easyfsl`](Self::easyfsl). Its benchmark has 10 steps at a rate of
///   0.0001. Its scores are bare distances; the logits here are these times the temperature.
/// - The logits send no gradient back to embeddings.
///
/// # Source
/// Dhillon, Chaudhari, Ravichandran and Soatto, "A Baseline for Few-Shot Image Classification",
/// ICLR 2020.
#[derive(Module, Clone, Debug, Serialize)]
pub struct TransductiveFineTuning {
    /// The score.
    #[module(skip)]
    pub similarity: Similarity,
    /// Order in which the terms of the loss are lowered.
    #[module(skip)]
    pub update: EntropyUpdate,
    /// Number of steps, or of pairs of steps if taken [in turn](EntropyUpdate::InTurn), at least 1.
    pub steps: usize,
    /// Learning rate, above 0.
    pub rate: f64,
    /// Factor of the scores, above 0.
    pub temperature: f64,
}

impl Default for TransductiveFineTuning {
    fn default() -> Self {
        Self {
            similarity: Similarity::Cosine,
            update: EntropyUpdate::InTurn,
            steps: 25,
            rate: 5e-5,
            temperature: 15.0,
        }
    }
}

impl TransductiveFineTuning {
    /// The paper's losses, lowered by a classifier of cosines.
    pub fn new() -> Self {
        Self::default()
    }

    /// The authors' classifier, on a network that is not fine-tuned.
    pub fn published() -> Self {
        Self { similarity: Similarity::Dot, temperature: 1.0, ..Self::new() }
    }

    /// easyfsl's, with the settings of its constructor.
    pub fn easyfsl() -> Self {
        let (similarity, update) = (Similarity::Euclidean, EntropyUpdate::Joint);
        Self { similarity, update, ..Self::published() }
    }

    /// Embeddings as the classifier sees them.
    fn seen<B: Backend>(&self, embeddings: Tensor<B, 3>) -> Tensor<B, 3> {
        match self.similarity {
            Similarity::Dot => with_feature(unit_length(embeddings, 2), 1.0),
            _ => embeddings,
        }
    }

    fn start<B: Backend>(&self, prototypes: Tensor<B, 3>) -> Tensor<B, 3> {
        match self.similarity {
            Similarity::Dot => with_feature(unit_length(prototypes, 2), 0.0),
            Similarity::Cosine => unit_length(prototypes, 2),
            Similarity::SquaredEuclidean | Similarity::Euclidean => prototypes,
        }
    }

    fn logits_of<B: Backend>(
        &self,
        support: EmbeddedSupport<B>,
        queries: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        some_steps(self.steps);
        let one_hot = support.one_hot();
        let mut weights = self.start(support.prototypes().detach());
        let [support, queries] = [support.embeddings, queries].map(|embeddings| {
            let seen = self.seen(embeddings.detach());
            Scored::new(self.similarity, self.temperature, seen, &weights)
        });
        let by_labels = |weights: &Tensor<B, 3>| {
            support.gradient(weights, |logits| cross_entropy_slopes(logits, one_hot.clone()))
        };
        let by_entropy = |weights: &Tensor<B, 3>| {
            queries.gradient(weights, |logits| entropy_slopes(logits, 0.0, 1.0))
        };
        let mut adam = Descent::adam(self.rate);
        for _ in 0..self.steps {
            let mut gradient = by_labels(&weights);
            match self.update {
                EntropyUpdate::Joint => gradient = gradient + by_entropy(&weights),
                EntropyUpdate::InTurn => {
                    weights = adam.step(weights, gradient);
                    gradient = by_entropy(&weights);
                }
            }
            weights = adam.step(weights, gradient);
        }
        queries.logits(weights)
    }
}

/// A bias is the weight of a feature that is always 1.
fn with_feature<B: Backend>(x: Tensor<B, 3>, value: f64) -> Tensor<B, 3> {
    let [tasks, examples, _] = x.dims();
    let feature = Tensor::full([tasks, examples, 1], value, &x.device());
    Tensor::cat(vec![x, feature], 2)
}

impl<B: Backend> Head<B> for TransductiveFineTuning {
    const NAME: &'static str = "transductive-finetuning";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let head = self.clone();
        FittedHead::new(support.ways, move |queries| head.logits_of(support.clone(), queries))
    }

    fn transductive(&self) -> bool {
        true
    }

    fn settings(&self) -> Value {
        json!(self)
    }
}
