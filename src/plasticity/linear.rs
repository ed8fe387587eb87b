use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::Activation;
use fewshot_kernels::weighted_sums;
use fewshot_models::nn::drawn;

use super::{PlasticityRule, Rate, RuleState, WeightUpdate};

/// Configuration of a [`PlasticLinear`] layer.
#[derive(Config, Debug)]
pub struct PlasticLinearConfig {
    /// Length of the inputs.
    pub d_input: usize,
    /// Number of neurons.
    pub d_output: usize,
    /// Activation of the neurons, applied to their weighted sums.
    #[config(default = "Activation::Linear")]
    pub activation: Activation,
}

/// A linear layer `y = f(x W^T)` whose weight changes by a [`PlasticityRule`].
///
/// # Conventions
/// A row of the weight is a neuron, as in the literature on plasticity and in PyTorch, the
/// transpose of Burn's linear layer: principal components are found as rows. There is no bias.
#[derive(Module, Debug)]
pub struct PlasticLinear<B: Backend> {
    /// Weight, `[neurons, inputs]`.
    pub weight: Param<Tensor<B, 2>>,
    #[module(skip)]
    pub(super) activation: Activation,
}

impl PlasticLinearConfig {
    /// Draws the weight, uniform within `1 / sqrt(d_input)`.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PlasticLinear<B> {
        let bound = 1.0 / (self.d_input.max(1) as f64).sqrt();
        let uniform = Initializer::Uniform { min: -bound, max: bound };
        drawn(PlasticLinear {
            weight: uniform.init([self.d_output, self.d_input], device),
            activation: self.activation,
        })
    }
}

impl<B: Backend> PlasticLinear<B> {
    /// A linear layer with this weight, `[neurons, inputs]`.
    pub fn from_weight(weight: Tensor<B, 2>) -> Self {
        Self { weight: Param::from_tensor(weight), activation: Activation::Linear }
    }

    /// Number of neurons.
    pub fn neurons(&self) -> usize {
        self.weight.dims()[0]
    }

    /// Length of an input.
    pub fn inputs(&self) -> usize {
        self.weight.dims()[1]
    }

    /// Outputs of the layer, without learning.
    ///
    /// # Shapes
    /// - `x`: `[b, inputs]`
    /// - returns `[b, neurons]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let sums = weighted_sums(x, self.weight.val());
        match self.activation {
            Activation::Linear => sums,
            Activation::Tanh => sums.tanh(),
            Activation::Relu => burn::tensor::activation::relu(sums),
        }
    }

    /// The layer after it has seen `x`, `[b, inputs]`, and the rule's next state.
    ///
    /// On an autodiff backend the new weight is a function of the old one, of `x` and of the rate.
    pub fn adapt<R: PlasticityRule<B>>(
        self,
        x: Tensor<B, 2>,
        rule: &R,
        state: RuleState<B>,
        rate: &Rate<B>,
    ) -> (Self, RuleState<B>) {
        let y = self.forward(x.clone());
        self.learn(x, y, rule, state, rate)
    }

    /// The same with outputs `y`, `[b, neurons]`, that are known already or clamped from outside.
    pub fn learn<R: PlasticityRule<B>>(
        self,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        rule: &R,
        state: RuleState<B>,
        rate: &Rate<B>,
    ) -> (Self, RuleState<B>) {
        self.learn_by(x, y, rule, state, |change, weight| change.apply(weight, rate))
    }

    /// The same, with the change made by `make`.
    pub(super) fn learn_by<R: PlasticityRule<B>>(
        self,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        rule: &R,
        state: RuleState<B>,
        make: impl FnOnce(WeightUpdate<B>, Tensor<B, 2>) -> Tensor<B, 2>,
    ) -> (Self, RuleState<B>) {
        let (weight, layer) = self.taken();
        let (change, state) = rule.change(&weight, x, y, state);
        (layer(make(change, weight)), state)
    }

    /// Its weight, and what makes a layer of another one.
    pub(super) fn taken(self) -> (Tensor<B, 2>, impl FnOnce(Tensor<B, 2>) -> Self) {
        let (id, weight, mapper) = self.weight.consume();
        let activation = self.activation;
        let made =
            move |weight| Self { weight: Param::from_mapped_value(id, weight, mapper), activation };
        (weight, made)
    }

    /// The layer without the graph that its weight came from.
    pub fn detach(self) -> Self {
        let (weight, layer) = self.taken();
        layer(weight.detach())
    }
}
