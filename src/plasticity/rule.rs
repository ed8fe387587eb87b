use std::fmt::Debug;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::LocalRule;

use super::WeightUpdate;

/// What a rule remembers from batch to batch: of the inputs, `[1, inputs]`, and of the neurons,
/// `[1, neurons]`, such as BCM's thresholds.
pub type RuleState<B> = [Option<Tensor<B, 2>>; 2];

/// How a weight `W` `[neurons, inputs]` changes with what its neurons get and give.
///
/// Rules see a batch at once: they take the mean of the examples' outer products, which is not the
/// outer product of the means, so that they learn from centred data as well.
///
/// # Shapes
/// - `x`: `[b, inputs]`, what goes in
/// - `y`: `[b, neurons]`, what comes out
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

    /// The rule as kernels of an accelerator have it, which go through many ticks in one launch; none
    /// of a rule that they do not have, which goes tick after tick everywhere.
    fn kernel(&self) -> Option<LocalRule> {
        None
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
