//! Layers that live at different paces.

mod fused;
mod level;
mod running;
mod schedule;
mod window;

pub use running::Running;
pub use schedule::Schedule;

use burn::config::Config;
use burn::module::Module;
use burn::prelude::ToElement;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::{Activation, Aggregate};

use self::window::windows;
use super::{
    PlasticLinear, PlasticLinearConfig, PlasticityError, PlasticityRule, Rate, explained_variance,
};

/// Configuration of a [`TemporalHierarchy`].
#[derive(Config, Debug)]
pub struct HierarchyConfig {
    /// Length of the input, then numbers of neurons from the fastest layer to the slowest.
    pub levels: Vec<usize>,
    /// Periods of the layers in ticks, each a multiple of the one before.
    pub periods: Vec<usize>,
    /// Summary of the outputs below a layer, which is its input.
    #[config(default = "Aggregate::Mean")]
    pub aggregate: Aggregate,
    /// Strength of the gain from parents on children; 0 is none.
    #[config(default = 0.0)]
    pub top_down: f64,
    /// Activation of the neurons, applied to their weighted sums.
    #[config(default = "Activation::Linear")]
    pub activation: Activation,
}

impl HierarchyConfig {
    /// Draws the weights.
    ///
    /// # Errors
    /// Where sizes, periods or the gain make no sense.
    pub fn init<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<TemporalHierarchy<B>, PlasticityError> {
        let actual = self.levels.len();
        if actual < 2 {
            return Err(PlasticityError::NoLayers { actual });
        }
        if self.levels.contains(&0) {
            let (name, expected) = ("size of a level", "at least 1");
            return Err(PlasticityError::Setting { name, expected, actual: 0.0 });
        }
        let schedule = Schedule::new(&self.periods, actual - 1)?;
        let layer = |(index, sizes): (usize, &[usize])| {
            let inputs = self.aggregate.length(sizes[0], schedule.ratio(index));
            PlasticLinearConfig::new(inputs, sizes[1]).with_activation(self.activation).init(device)
        };
        let layers = self.levels.windows(2).enumerate().map(layer).collect();
        TemporalHierarchy::new(layers, &self.periods, self.aggregate)?.with_top_down(self.top_down)
    }
}

/// Plastic layers on top of each other, of which the higher ones work more slowly.
///
/// A layer of period `p` fires at the ticks `0, p, 2p, ...`, on the [`Aggregate`] of what the layer
/// below gave since it fired last, that of the present tick included, and holds its output
/// otherwise: over `T` ticks it fires `ceil(T / p)` times. The window of the first firing is filled
/// with the first output. Each period is a multiple of the one below.
///
/// With a top-down gain `g`, a layer that has a parent gives `y (1 + g tanh(W_p^T y_p))`, with the
/// parent's weight and output of the tick before: what the parent expects of it is amplified.
#[derive(Module, Debug)]
pub struct TemporalHierarchy<B: Backend> {
    /// From the one that sees the input to the slowest.
    layers: Vec<PlasticLinear<B>>,
    #[module(skip)]
    schedule: Schedule,
    #[module(skip)]
    aggregate: Aggregate,
    top_down: f64,
}

/// The outputs of a layer when it fired.
#[derive(Clone, Debug)]
pub struct Firings<B: Backend> {
    /// Ticks from one firing to the next.
    pub period: usize,
    /// The outputs in the order in which they came, `[b, firings, neurons]`.
    pub outputs: Tensor<B, 3>,
}

impl<B: Backend> TemporalHierarchy<B> {
    /// A hierarchy of these layers, from the fastest to the slowest.
    ///
    /// # Errors
    /// Without a layer, and where sizes or periods do not fit.
    pub fn new(
        layers: Vec<PlasticLinear<B>>,
        periods: &[usize],
        aggregate: Aggregate,
    ) -> Result<Self, PlasticityError> {
        let schedule = Schedule::new(periods, layers.len())?;
        let (actual, period) = (layers[0].inputs(), schedule.ratio(0));
        if aggregate == Aggregate::Concat && !actual.is_multiple_of(period) {
            return Err(PlasticityError::Window { period, actual });
        }
        let pairs = layers.iter().zip(&layers[1..]);
        for (below, (child, parent)) in pairs.enumerate() {
            let expected = aggregate.length(child.neurons(), schedule.ratio(below + 1));
            let actual = parent.inputs();
            if actual != expected {
                return Err(PlasticityError::Chain { layer: below + 2, expected, actual });
            }
        }
        Ok(Self { layers, schedule, aggregate, top_down: 0.0 })
    }

    /// With a gain from each layer's parent on its output, 0 by default.
    ///
    /// # Errors
    /// When it is no finite number, or parents see several outputs in a row.
    pub fn with_top_down(self, gain: f64) -> Result<Self, PlasticityError> {
        if !gain.is_finite() {
            let (name, expected) = ("top-down gain", "a number");
            return Err(PlasticityError::Setting { name, expected, actual: gain });
        }
        match self.aggregate == Aggregate::Concat && gain != 0.0 {
            true => Err(PlasticityError::FeedbackIntoWindow),
            false => Ok(Self { top_down: gain, ..self }),
        }
    }

    /// The layers, from the one that sees the input to the slowest.
    pub fn layers(&self) -> &[PlasticLinear<B>] {
        &self.layers
    }

    /// Length of what the first layer sees in a tick.
    pub fn inputs(&self) -> usize {
        self.layers[0].inputs() / self.aggregate.length(1, self.schedule.ratio(0))
    }

    /// When layers fire.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// At the first tick, with a rule for all layers and a rate; at a rate of zero nothing adapts.
    pub fn start<R: PlasticityRule<B>>(&self, rule: R, rate: Rate<B>) -> Running<B, R> {
        Running::new(self.clone(), rule, rate)
    }

    /// Outputs of all layers over whole sequences from their first tick, `[b, T, inputs]`, while
    /// nothing adapts. A layer takes one product, unless there is a top-down gain, with which one tick comes
    /// after the other.
    ///
    /// # Errors
    /// When the sequences are of another length or have none, or are not finite.
    pub fn forward(&self, xs: Tensor<B, 3>) -> Result<Vec<Firings<B>>, PlasticityError> {
        self.check(&xs)?;
        if self.top_down != 0.0 {
            let running = self.start(super::Hebb::new(), Rate::Fixed(0.0));
            return Ok(running.run(xs)?.1);
        }
        Ok(self.firings(self.pass(xs).into_iter().map(|(_, outputs)| outputs)))
    }

    /// Each layer's [`explained_variance`] of what it sees over whole sequences from their first
    /// tick, `[b, T, inputs]`, gains left out.
    pub fn explained_variance(&self, xs: Tensor<B, 3>) -> Result<Vec<f64>, PlasticityError> {
        self.check(&xs)?;
        let passed = self.pass(xs).into_iter().zip(&self.layers);
        Ok(passed.map(|((seen, _), layer)| explained_variance(layer.weight.val(), seen)).collect())
    }

    /// The firings with these outputs of the layers, from the fastest on.
    fn firings(&self, outputs: impl Iterator<Item = Tensor<B, 3>>) -> Vec<Firings<B>> {
        let firings = |(layer, outputs)| Firings { period: self.schedule.period(layer), outputs };
        outputs.enumerate().map(firings).collect()
    }

    /// Inputs of each layer, `[b * firings, d]`, and its outputs, `[b, firings, neurons]`.
    fn pass(&self, xs: Tensor<B, 3>) -> Vec<(Tensor<B, 2>, Tensor<B, 3>)> {
        let mut below = xs;
        let layers = self.layers.iter().enumerate().map(|(index, layer)| {
            let windows = windows(self.aggregate, below.clone(), self.schedule.ratio(index));
            let [batch, firings, length] = windows.dims();
            let seen = windows.reshape([batch * firings, length]);
            below = layer.forward(seen.clone()).reshape([batch, firings, layer.neurons()]);
            (seen, below.clone())
        });
        layers.collect()
    }

    fn check(&self, xs: &Tensor<B, 3>) -> Result<(), PlasticityError> {
        self.check_shape(xs.dims(), None)?;
        finite(xs.clone(), 0)
    }

    /// Checks the shape of inputs `[b, ticks, length]` of sequences that go on, or begin if none did.
    fn check_shape(
        &self,
        [batch, ticks, actual]: [usize; 3],
        begun: Option<usize>,
    ) -> Result<(), PlasticityError> {
        let expected = self.inputs();
        match begun {
            _ if batch == 0 => Err(PlasticityError::NoSequences),
            _ if actual != expected => Err(PlasticityError::Inputs { expected, actual }),
            Some(expected) if expected != batch => {
                Err(PlasticityError::Sequences { expected, actual: batch })
            }
            _ if ticks == 0 => Err(PlasticityError::NoSteps),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// When a value is not finite; costs one read from the device.
fn finite<B: Backend, const D: usize>(
    xs: Tensor<B, D>,
    tick: usize,
) -> Result<(), PlasticityError> {
    match xs.is_finite().all().into_scalar().to_bool() {
        true => Ok(()),
        false => Err(PlasticityError::NotFinite { tick }),
    }
}
