use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde_json::{Value, json};

use super::similarity::{Scored, Similarity};
use super::slopes::cross_entropy_slopes;
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// Fine-tuned prototypes: class means that Adam moves down the cross-entropy of the support.
///
/// `p(y = k | x) = softmax_k(temperature * cos(x, w_k))`, with `w_k` the class means at first.
///
/// # Conventions
/// This is easyfsl's reading of the paper's Baseline++: prototypes in place of drawn weights, Adam
/// in place of SGD, and neither gains nor weight decay; the paper itself is
/// [`BaselinePlusPlus`](super::BaselinePlusPlus). [`new`](Self::new) has the settings of easyfsl's
/// constructor; its benchmark has 50 steps and a temperature of 10. Its scores are bare cosines; the
/// logits here are the cosines times the temperature, so that a softmax of them gives probabilities.
///
/// The fit sends no gradient back to the embeddings of the support.
///
/// # Source
/// Chen, Liu, Kira, Wang and Huang, "A Closer Look at Few-shot Classification", ICLR 2019.
#[derive(Module, Clone, Debug)]
pub struct Finetune {
    /// Steps of Adam, at least 1.
    pub steps: usize,
    /// Learning rate, above 0.
    pub rate: f64,
    /// Factor of the cosines, above 0.
    pub temperature: f64,
}

impl Default for Finetune {
    fn default() -> Self {
        Self { steps: 200, rate: 1e-4, temperature: 1.0 }
    }
}

impl Finetune {
    /// 200 steps of Adam at a rate of 0.0001, with a temperature of 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// The prototypes after fine-tuning, `[t, ways, d]`.
    pub fn class_weights<B: Backend>(&self, support: EmbeddedSupport<B>) -> Tensor<B, 3> {
        let one_hot = support.one_hot();
        let start = support.prototypes().detach();
        let embeddings = support.embeddings.detach();
        let scored = Scored::new(Similarity::Cosine, self.temperature, embeddings, &start);
        let slopes = |logits| cross_entropy_slopes(logits, one_hot.clone());
        scored.descended(start, (self.steps, self.rate), slopes)
    }
}

impl<B: Backend> Head<B> for Finetune {
    const NAME: &'static str = "finetune";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let weights = unit_length(self.class_weights(support), 2) * self.temperature;
        let weights = weights.swap_dims(1, 2);
        FittedHead::new(ways, move |queries| product(unit_length(queries, 2), weights.clone()))
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let weights = unit_length(self.class_weights(support), 2) * self.temperature;
        Ok(LogitFormula::products(LengthNormalisation::Unit, weights.swap_dims(1, 2)))
    }

    fn settings(&self) -> Value {
        json!({ "steps": self.steps, "rate": self.rate, "temperature": self.temperature })
    }
}
