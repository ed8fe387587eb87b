use std::fmt::Debug;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::LocalRule;
use fewshot_kernels::{Coefficient, product, rank_update};

use super::Rate;

/// Memory of a rule from batch to batch: of the inputs, `[1, inputs]`, and of the neurons,
/// `[1, neurons]`, such as BCM's thresholds.
pub type RuleState<B> = [Option<Tensor<B, 2>>; 2];

/// Rule by which a weight `W` `[neurons, inputs]` changes with the inputs and outputs of its neurons.
///
/// Rules see a batch at once: they take the mean of the examples' outer products, which is not the
/// outer product of the means, so that they learn from centred data as well.
///
/// # Shapes
/// - `x`: inputs `[b, inputs]`
/// - `y`: outputs `[b, neurons]`
pub trait PlasticityRule<B: Backend>: Clone + Debug {
    /// The state before the first batch; by default nothing.
    fn init(&self, _neurons: usize, _inputs: usize, _device: &B::Device) -> RuleState<B> {
        [None, None]
    }

    /// The change at a rate of 1, and the state for the next batch.
    fn change(
        &self,
        weight: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        state: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>);

    /// True if a rate beyond [`largest_rate`](super::largest_rate) unsettles the weight.
    fn settles(&self) -> bool {
        false
    }

    /// The rule as kernels of an accelerator have it, which go through many ticks in one launch; none
    /// of a rule that they do not have, which goes tick after tick everywhere.
    fn kernel(&self) -> Option<LocalRule> {
        None
    }
}

/// Change of a weight `W` `[neurons, inputs]` by a rule: `post^T pre` less the decay.
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
    /// Decay of the weight.
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
        rank_update(weight, decay, self.post, self.pre, rate.coefficient())
    }
}

/// Mean over the batch as a column, `[b, d]` to `[d, 1]`.
pub(super) fn mean_column<B: Backend>(values: Tensor<B, 2>) -> Tensor<B, 2> {
    let [examples, length] = values.dims();
    let mean = if examples == 1 { values } else { values.mean_dim(0) };
    mean.reshape([length, 1])
}

/// Divided by the size of the batch.
pub(super) fn share<B: Backend>(values: Tensor<B, 2>) -> Tensor<B, 2> {
    match values.dims()[0] {
        1 => values,
        examples => values * (examples as f64).recip(),
    }
}
