//! Settings of layers that learn.

use serde::{Deserialize, Serialize};

/// The function of a neuron's weighted sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// The sum itself, as the theory of Oja's rules has it.
    #[default]
    Linear,
    /// Its hyperbolic tangent.
    Tanh,
    /// Its positive part.
    Relu,
}

/// The input of a layer, made of the outputs below it since it fired last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// The last one.
    Last,
    /// Their mean.
    #[default]
    Mean,
    /// All of them, from the oldest to the newest.
    Concat,
}

impl Aggregate {
    /// Length of what a layer sees in `ratio` outputs of `length` values.
    pub fn length(self, length: usize, ratio: usize) -> usize {
        match self {
            Self::Last | Self::Mean => length,
            Self::Concat => length * ratio,
        }
    }
}

/// The function of output and threshold that a neuron of the rule of Bienenstock, Cooper and Munro learns
/// by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BcmForm {
    /// `y (y - theta)`
    #[default]
    IntratorCooper,
    /// `y (y - theta) / theta`, which slows neurons with a high threshold.
    ///
    /// A threshold below 1e-3 divides as 1e-3, so that a neuron that was silent, whose threshold goes
    /// to zero, learns on.
    Law,
}

/// The local rules that accelerators have a kernel for; the types of the same names in the crate
/// `fewshot` have the formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// `<y x^T> - decay W`
    Hebb,
    /// Hebb's rule on deviations from running means of inputs and outputs.
    Covariance,
    /// Oja's rule for each neuron by itself.
    Oja,
    /// Oja's rule for a layer.
    Subspace,
    /// The generalised Hebbian algorithm.
    Sanger,
    /// The rule of Bienenstock, Cooper and Munro, with a threshold for each neuron.
    Bcm(BcmForm),
}

/// A local rule with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalRule {
    /// The rule.
    pub kind: RuleKind,
    /// Firings within which what it remembers follows, 1 if it remembers nothing.
    pub tau: f64,
    /// Share of the weight that is forgotten, whatever comes in; 0 of Oja's rules and Sanger's.
    pub decay: f64,
}

/// The sizes of a layer, and when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLayer {
    /// Number of neurons.
    pub neurons: usize,
    /// Length of what it sees.
    pub inputs: usize,
    /// Ticks from one firing to the next, a multiple of the layer's below.
    pub period: usize,
}

/// The settings of layers on top of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalLearning {
    /// From the one that sees the input to the slowest, at least one.
    pub layers: Vec<LocalLayer>,
    /// The rule they learn by.
    pub rule: LocalRule,
    /// The share of a change that is made; at 0 nothing is learned or remembered of the rule.
    pub rate: f64,
    /// If the rate is relative to the power of inputs: the firings that this power is averaged over.
    pub relative: Option<f64>,
    /// The input of a layer, made of the outputs below.
    pub aggregate: Aggregate,
    /// The function of a neuron's sum.
    pub activation: Activation,
    /// Strength of the gain from parents on children; 0 is none.
    pub top_down: f64,
    /// Number of sequences, at least one.
    pub sequences: usize,
    /// True if the outputs of all firings are returned.
    pub returns_outputs: bool,
}

impl LocalLearning {
    /// Ticks from one output below a layer to the next.
    pub fn period_below(&self, layer: usize) -> usize {
        layer.checked_sub(1).map_or(1, |below| self.layers[below].period)
    }

    /// Outputs below a layer to one of its own.
    pub fn ratio(&self, layer: usize) -> usize {
        self.layers[layer].period / self.period_below(layer)
    }

    /// The number of weights that meet a sequence in a tick, on average and at least one.
    pub fn work(&self) -> usize {
        let weights = |layer: &LocalLayer| layer.inputs * layer.neurons / layer.period;
        (self.sequences * self.layers.iter().map(weights).sum::<usize>()).max(1)
    }

    /// Shapes of the outputs `[b, firings, neurons]` of the layers that fire in some ticks from `start`
    /// on, if they are wanted. Where a layer does not fire, those above do not.
    pub fn outputs(&self, start: usize, ticks: usize) -> Vec<[usize; 3]> {
        let returned = self.layers.iter().enumerate().filter(|_| self.returns_outputs);
        let shape = |(index, layer): (usize, &LocalLayer)| {
            [self.sequences, self.firings(index, start, ticks), layer.neurons]
        };
        returned.map(shape).take_while(|[_, firings, _]| *firings > 0).collect()
    }

    /// The number of firings of a layer in some ticks from `start` on.
    pub fn firings(&self, layer: usize, start: usize, ticks: usize) -> usize {
        let period = self.layers[layer].period;
        (start + ticks).div_ceil(period) - start.div_ceil(period)
    }
}
