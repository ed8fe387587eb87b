use burn::config::Config;
use burn::module::Param;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use serde::{Deserialize, Serialize};

use super::Leo;
use crate::learners::heads::{LengthNormalisation, not_negative};

/// Combination of the losses of the support's examples in the steps of a [`Leo`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeoLoss {
    /// Their sum over all examples, as in the paper's formula.
    ///
    /// At rates of 1 and above, draws overflow in 5-shot training on some tasks of few features.
    Sum,
    /// Their sum over all examples, divided by the number of examples of the class that steps, as
    /// in the authors' code, to which the default rates belong.
    #[default]
    PerShot,
    /// Their mean over all examples, as in LibFewShot.
    Mean,
}

/// Codes and class weights of a [`Leo`] on a backend that differentiates, as in training; on other
/// backends it takes their means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeoCodes {
    /// Draws from their distributions, with the backend's random numbers.
    #[default]
    Drawn,
    /// Their means.
    Mean,
}

/// Configuration of a [`Leo`], with the numbers of the authors' code, except that nothing is
/// dropped out.
#[derive(Config, Debug)]
pub struct LeoConfig {
    /// Features of an embedding.
    pub features: usize,
    /// Features of a code.
    #[config(default = 64)]
    pub latents: usize,
    /// Steps of the codes.
    #[config(default = 5)]
    pub steps: usize,
    /// Steps of the class weights after that.
    #[config(default = 5)]
    pub fine_tuning_steps: usize,
    /// Rate of the codes' steps at first; one for each of their features is learned.
    #[config(default = 1.0)]
    pub rate: f64,
    /// Rate of the class weights' steps at first; one for each of their features is learned.
    #[config(default = 0.001)]
    pub fine_tuning_rate: f64,
    /// Combination of the losses of the support's examples.
    #[config(default = "LeoLoss::PerShot")]
    pub loss: LeoLoss,
    /// Codes and class weights in training.
    #[config(default = "LeoCodes::Drawn")]
    pub codes: LeoCodes,
    /// Lengths of the embeddings, 1 in the authors' data. Longer embeddings need
    /// smaller rates, or draws overflow in training.
    #[config(default = "LengthNormalisation::Unit")]
    pub lengths: LengthNormalisation,
    /// Share of the features of embeddings that training drops out wherever they are read; 0.3 to
    /// 0.475 in the authors' best settings.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Weight in the loss of half the sum of all squared weights, `λ₁` in the paper.
    #[config(default = 1e-8)]
    pub l2_penalty: f64,
    /// Weight in the loss of the mean squared difference between the cosines of the decoder's rows
    /// and an identity matrix, `λ₂` in the paper.
    #[config(default = 1e-3)]
    pub orthogonality_penalty: f64,
    /// Weight in the loss of the divergence of codes from `N(0, 1)`, `β` in the paper.
    #[config(default = 1e-3)]
    pub divergence_penalty: f64,
    /// Weight in the loss of the squared difference that the steps make to codes, `γ` in the paper.
    #[config(default = 1e-9)]
    pub code_penalty: f64,
}

impl LeoConfig {
    /// The head with weights drawn as in the authors' code: Glorot's uniform distribution.
    ///
    /// # Panics
    /// When a size or the number of steps of the codes is zero, a rate or a penalty is negative or
    /// not a number, or the dropout is not from 0 to less than 1.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Leo<B> {
        let Self { features, latents, steps, rate, fine_tuning_rate, dropout, .. } = *self;
        let sizes = [features, latents, steps];
        assert!(!sizes.contains(&0), "features, codes and steps of LEO must be some: {sizes:?}");
        not_negative("rates of LEO", [rate, fine_tuning_rate]);
        not_negative("penalties of weights", [self.l2_penalty, self.orthogonality_penalty]);
        not_negative("penalties of codes", [self.divergence_penalty, self.code_penalty]);
        assert!((0.0..1.0).contains(&dropout), "dropout is from 0 to less than 1, found {dropout}");
        let drawn = |inputs: usize, outputs: usize| {
            let bound = (6.0 / (inputs + outputs) as f64).sqrt();
            let uniform = Distribution::Uniform(-bound, bound);
            Param::from_tensor(Tensor::random([inputs, outputs], uniform, device))
        };
        Leo {
            encoder: drawn(features, latents),
            relations: (0..3).map(|_| drawn(2 * latents, 2 * latents)).collect(),
            decoder: drawn(latents, 2 * features),
            rates: Param::from_tensor(Tensor::full([latents], rate, device)),
            fine_tuning_rates: Param::from_tensor(Tensor::full(
                [features],
                fine_tuning_rate,
                device,
            )),
            config: self.clone(),
        }
    }
}
