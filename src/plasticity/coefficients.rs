use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::rule::share;
use super::{Decay, PlasticityError, PlasticityRule, RuleState, WeightUpdate};

/// A rule that can be learned, `dW = <A y x^T + B x^T + C y + D>`, with four numbers for all
/// connections.
///
/// Hebb's rule is `(1, 0, 0, 0)`. On an autodiff backend the numbers get gradients through as many
/// changes as one likes.
///
/// # Source
/// The terms up to second order but `x^2`, `y^2` of Gerstner and Kistler, "Spiking Neuron Models",
/// 2002, section 10.2; Najarro and Risi, "Meta-Learning through Hebbian Plasticity in Random
/// Networks", NeurIPS 2020, search for such coefficients.
#[derive(Module, Debug)]
pub struct Coefficients<B: Backend> {
    /// `A, B, C, D`, `[4]`.
    pub values: Param<Tensor<B, 1>>,
}

impl<B: Backend> Coefficients<B> {
    /// The rule with these `A, B, C, D`.
    ///
    /// # Errors
    /// When one is not finite in 32 bits.
    pub fn new(values: [f64; 4], device: &B::Device) -> Result<Self, PlasticityError> {
        if let Some(&actual) = values.iter().find(|value| !(**value as f32).is_finite()) {
            let (name, expected) = ("coefficient", "a finite number of 32 bits");
            return Err(PlasticityError::Setting { name, expected, actual });
        }
        let values = Tensor::from_data(values.map(|value| value as f32), device);
        Ok(Self { values: Param::from_tensor(values) })
    }

    /// One of the numbers, `[1, 1]`.
    fn value(&self, index: usize) -> Tensor<B, 2> {
        self.values.val().narrow(0, index, 1).reshape([1, 1])
    }
}

impl<B: Backend> PlasticityRule<B> for Coefficients<B> {
    fn change(
        &self,
        _: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        state: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        // Examples times two terms: (A y + B) x^T and (C y + D) 1^T.
        let with_inputs = y.clone() * self.value(0) + self.value(1);
        let without = y * self.value(2) + self.value(3);
        let ones = x.ones_like();
        let post = Tensor::cat(vec![share(with_inputs), share(without)], 0);
        let pre = Tensor::cat(vec![x, ones], 0);
        (WeightUpdate { post, pre, decay: Decay::None }, state)
    }
}
