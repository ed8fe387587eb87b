use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Coefficient, product, rank_update};

use super::Rate;

/// What a rule does to a weight `W` `[neurons, inputs]`: `post^T pre` less what is forgotten.
///
/// In this form it can be made in place, without a tensor for the change itself.
///
/// # Shapes
/// - `post`: `[k, neurons]`, with the mean over a batch already in it
/// - `pre`: `[k, inputs]`
#[derive(Clone, Debug)]
pub struct WeightUpdate<B: Backend> {
    /// Left factor of the growth.
    pub post: Tensor<B, 2>,
    /// Right factor of the growth.
    pub pre: Tensor<B, 2>,
    /// What is taken from the weight.
    pub decay: Decay<B>,
}

/// The part of a [`WeightUpdate`] that is linear in the weight.
#[derive(Clone, Debug)]
pub enum Decay<B: Backend> {
    /// Nothing.
    None,
    /// `rate W`
    Same(f64),
    /// `diag(rates) W`, with a rate for each neuron, `[neurons, 1]`.
    Each(Tensor<B, 2>),
    /// `M W`, with the weights of other neurons, `[neurons, neurons]`.
    Between(Tensor<B, 2>),
}

impl<B: Backend> WeightUpdate<B> {
    /// The change of `weight` at a rate of 1.
    pub fn delta(self, weight: Tensor<B, 2>) -> Tensor<B, 2> {
        let growth = product(self.post.transpose(), self.pre);
        match self.decay {
            Decay::None => growth,
            Decay::Same(rate) => growth - weight * rate,
            Decay::Each(rates) => growth - weight * rates,
            Decay::Between(mix) => growth - product(mix, weight),
        }
    }

    /// `weight + rate * delta`, in place where nothing else holds the weight.
    pub fn apply(self, weight: Tensor<B, 2>, rate: &Rate<B>) -> Tensor<B, 2> {
        let (weight, decay) = match self.decay {
            Decay::None => (weight, Coefficient::Number(0.0)),
            Decay::Same(forgotten) => (weight, Coefficient::Number(forgotten)),
            Decay::Each(rates) => (weight, Coefficient::Tensor(rates)),
            Decay::Between(mix) => {
                (weight.clone() - product(rate.times(mix), weight), Coefficient::Number(0.0))
            }
        };
        rank_update(weight, decay, self.post, self.pre, rate.of_update())
    }
}
