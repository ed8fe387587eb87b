use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::inverse_power;

use super::window::Window;
use crate::plasticity::{
    Decay, PlasticLinear, PlasticityRule, Rate, RuleState, TemporalHierarchy, WeightUpdate,
    largest_rate,
};

/// The rule and the rate of a hierarchy's layers.
#[derive(Clone, Debug)]
pub(super) struct Learning<B: Backend, R> {
    pub(super) rule: R,
    pub(super) rate: Rate<B>,
    /// Firings within which the power of inputs is followed, where rates are relative to it.
    pub(super) relative: Option<f64>,
}

/// Memory of one layer.
#[derive(Clone, Debug)]
pub(super) struct Level<B: Backend> {
    /// The layer's, from 0.
    pub(super) index: usize,
    /// Firings below to one of its own.
    pub(super) ratio: usize,
    /// State of the rule.
    pub(super) state: RuleState<B>,
    pub(super) window: Window<B>,
    /// The last output, held until the next.
    pub(super) output: Option<Tensor<B, 2>>,
    /// Factor that the parent applies to the next outputs.
    pub(super) gain: Option<Tensor<B, 2>>,
    /// Running mean of the squared length of what it sees, `[1]`.
    pub(super) power: Option<Tensor<B, 1>>,
    /// The rate beyond which it may not settle, once it saw something.
    pub(super) bound: Option<f64>,
}

impl<B: Backend> Level<B> {
    pub(super) fn new(
        hierarchy: &TemporalHierarchy<B>,
        index: usize,
        rule: &impl PlasticityRule<B>,
    ) -> Self {
        let layer = &hierarchy.layers()[index];
        Self {
            index,
            ratio: hierarchy.schedule().ratio(index),
            state: rule.init(layer.neurons(), layer.inputs(), &layer.weight.val().device()),
            window: Window { aggregate: hierarchy.aggregate, outputs: Vec::new(), came: 0 },
            output: None,
            gain: None,
            power: None,
            bound: None,
        }
    }

    /// Gives an output for what is in its window, and learns.
    pub(super) fn fire(
        mut self,
        layer: PlasticLinear<B>,
        learning: &Learning<B, impl PlasticityRule<B>>,
    ) -> (Self, PlasticLinear<B>, Tensor<B, 2>) {
        let seen = self.window.take(self.ratio);
        let seen = seen.expect("a layer that fires has taken in an output");
        let output = layer.forward(seen.clone());
        let output = match &self.gain {
            Some(gain) => output * gain.clone(),
            None => output,
        };
        self.output = Some(output.clone());
        if learning.rate.is_zero() {
            return (self, layer, output);
        }
        if learning.rule.settles() && self.bound.is_none() {
            self.warn(&seen, learning);
        }
        let (level, layer) = self.learn(layer, seen, output.clone(), learning);
        (level, layer, output)
    }

    fn learn(
        mut self,
        layer: PlasticLinear<B>,
        seen: Tensor<B, 2>,
        output: Tensor<B, 2>,
        learning: &Learning<B, impl PlasticityRule<B>>,
    ) -> (Self, PlasticLinear<B>) {
        let scale = learning.relative.map(|tau| self.scale(&seen, tau));
        let Learning { rule, rate, .. } = learning;
        let make = |change: WeightUpdate<B>, weight| match (scale, &change.decay) {
            (None, _) => change.apply(weight, rate),
            // A steady decay has nothing to do with the inputs' power.
            (Some(scale), Decay::Same(_)) => {
                let post = change.post * scale.reshape([1, 1]);
                WeightUpdate { post, ..change }.apply(weight, rate)
            }
            (Some(scale), _) => change.apply(weight, &Rate::Learned(rate.times(scale))),
        };
        let (layer, state) = layer.learn_by(seen, output, rule, self.state, make);
        (Self { state, ..self }, layer)
    }

    /// One over the power of the inputs, `[1]`, and 0 where there is none.
    fn scale(&mut self, seen: &Tensor<B, 2>, tau: f64) -> Tensor<B, 1> {
        let (inverse, mean) = inverse_power(seen.clone(), self.power.take(), tau);
        self.power = Some(mean);
        inverse
    }

    /// Once, at the first firing that sees anything but zeros: it reads from the device.
    fn warn(&mut self, seen: &Tensor<B, 2>, learning: &Learning<B, impl PlasticityRule<B>>) {
        let bound = match learning.relative {
            Some(_) => 1.0,
            None => largest_rate(seen.clone()),
        };
        self.bounded_by(bound, &learning.rate);
    }

    /// Keeps this bound, if it is one, and warns of a rate beyond it.
    pub(super) fn bounded_by(&mut self, bound: f64, rate: &Rate<B>) {
        if !bound.is_finite() {
            return;
        }
        self.bound = Some(bound);
        let rate = rate.value();
        if rate > bound {
            log::warn!(
                "a rate of {rate} is beyond {bound:.3e}, the bound that the power of the inputs of \
                 layer {} sets; its weights may not settle",
                self.index + 1
            );
        }
    }

    /// Without the graph of what was learned so far.
    pub(super) fn detach(self) -> Self {
        Self {
            state: self.state.map(|state| state.map(Tensor::detach)),
            window: Window {
                outputs: self.window.outputs.into_iter().map(Tensor::detach).collect(),
                ..self.window
            },
            output: self.output.map(Tensor::detach),
            gain: self.gain.map(Tensor::detach),
            power: self.power.map(Tensor::detach),
            ..self
        }
    }
}
