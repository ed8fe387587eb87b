use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::LocalMemory;
use fewshot_kernels::product;

use super::level::{Learning, Level};
use super::{Firings, TemporalHierarchy, finite};
use crate::plasticity::error::at_least;
use crate::plasticity::{PlasticLinear, PlasticityError, PlasticityRule, Rate};

/// The state of a [`TemporalHierarchy`] while it runs through sequences and learns.
///
/// Every step consumes it and gives the next one. Layers learn when they fire, from what they see
/// and what they give.
#[derive(Clone, Debug)]
pub struct Running<B: Backend, R: PlasticityRule<B>> {
    pub(super) hierarchy: TemporalHierarchy<B>,
    pub(super) levels: Vec<Level<B>>,
    pub(super) learning: Learning<B, R>,
    pub(super) tick: usize,
    /// Sequences that began, once they did.
    pub(super) sequences: Option<usize>,
    /// Memory of an accelerator in place of the levels, while it goes through whole sequences.
    pub(in crate::plasticity) memory: Option<LocalMemory<B>>,
}

impl<B: Backend, R: PlasticityRule<B>> Running<B, R> {
    pub(super) fn new(hierarchy: TemporalHierarchy<B>, rule: R, rate: Rate<B>) -> Self {
        let layers = 0..hierarchy.layers.len();
        let levels = layers.map(|index| Level::new(&hierarchy, index, &rule)).collect();
        let learning = Learning { rule, rate, relative: None };
        Self { hierarchy, levels, learning, tick: 0, sequences: None, memory: None }
    }

    /// With the rate of each layer as a share of [`largest_rate`](crate::plasticity::largest_rate) for what the layer sees: of the
    /// squared length at hand or its running mean over `tau` firings, whichever is larger.
    ///
    /// Higher layers see the sum of many neurons, so that one rate for all can suit only one. A
    /// steady decay, as of [`Hebb::with_decay`](crate::plasticity::Hebb::with_decay), does not go
    /// with the inputs and happens at the rate itself. Inputs of zeros teach nothing.
    ///
    /// # Errors
    /// Unless `tau` is a number from one on.
    pub fn with_relative_rates(self, tau: f64) -> Result<Self, PlasticityError> {
        let tau = at_least("tau", 1.0, "a number from 1 on", tau)?;
        Ok(Self { learning: Learning { relative: Some(tau), ..self.learning }, ..self })
    }

    /// With another rate from here on.
    pub fn with_rate(self, rate: Rate<B>) -> Self {
        Self { learning: Learning { rate, ..self.learning }, ..self }
    }

    /// The same state without the graph that it came from: gradients of what follows stop here, as
    /// truncated backpropagation through time has it, and what came before is freed.
    ///
    /// A learned rate keeps its graph; see [`with_rate`](Self::with_rate) for the next one.
    pub fn detach(mut self) -> Self {
        let layers = self.hierarchy.layers.into_iter();
        self.hierarchy.layers = layers.map(PlasticLinear::detach).collect();
        self.levels = self.levels.into_iter().map(Level::detach).collect();
        self
    }

    /// Ticks done.
    pub fn tick(&self) -> usize {
        self.tick
    }

    /// The layers as they are now.
    pub fn hierarchy(&self) -> &TemporalHierarchy<B> {
        &self.hierarchy
    }

    /// The output that a layer holds, `[b, neurons]`; none before the first tick.
    pub fn output(&self, layer: usize) -> Option<Tensor<B, 2>> {
        match &self.memory {
            Some(memory) => Some(memory.output(layer)),
            None => self.levels[layer].output.clone(),
        }
    }

    /// The rate beyond which each layer may not settle, [`largest_rate`](crate::plasticity::largest_rate) for the first input other
    /// than zeros that it saw, or 1 of relative rates. None before, and for rules without a bound.
    ///
    /// Where the rate is beyond, a warning was logged.
    pub fn bounds(&self) -> Vec<Option<f64>> {
        self.levels.iter().map(|level| level.bound).collect()
    }

    /// One tick with the input `x`, `[b, inputs]`. The layers that fired gave new outputs, the others
    /// hold theirs.
    ///
    /// A check that the input is finite reads from the device at every tick, which on an accelerator may
    /// cost more than the tick. [`run`](Self::run) and [`learn`](Self::learn) read once, and take one
    /// launch for all ticks.
    ///
    /// # Errors
    /// When the input has another length, is not finite, or is of no sequence or of another number
    /// of them than before.
    pub fn step(self, x: Tensor<B, 2>) -> Result<Self, PlasticityError> {
        let [batch, length] = x.dims();
        self.hierarchy.check_shape([batch, 1, length], self.sequences)?;
        self.learn(x.reshape([batch, 1, length]))
    }

    /// All ticks of `xs`, `[b, T, inputs]`, with what the layers gave when they fired; a layer that
    /// did not has no firings here.
    ///
    /// An accelerator goes through all of them in one launch, by every built-in rule at a rate that is
    /// not learned, unless layers and batches are too large for one multiprocessor.
    ///
    /// # Errors
    /// Fails like [`step`](Self::step), and when there is no tick.
    pub fn run(self, xs: Tensor<B, 3>) -> Result<(Self, Vec<Firings<B>>), PlasticityError> {
        self.hierarchy.check_shape(xs.dims(), self.sequences)?;
        if let Some(settings) = self.settings(&xs, true) {
            return self.fused(xs, &settings);
        }
        let mut fired: Vec<Vec<Tensor<B, 3>>> = vec![Vec::new(); self.levels.len()];
        let running = self.through(xs, &mut |layer, output| {
            fired[layer].push(output.clone().unsqueeze_dim(1));
        })?;
        // Where a layer did not fire, none above it did.
        let fired = fired.into_iter().take_while(|outputs| !outputs.is_empty());
        let firings = running.hierarchy.firings(fired.map(|outputs| Tensor::cat(outputs, 1)));
        Ok((running, firings))
    }

    /// Runs like [`run`](Self::run), without the outputs.
    pub fn learn(self, xs: Tensor<B, 3>) -> Result<Self, PlasticityError> {
        self.hierarchy.check_shape(xs.dims(), self.sequences)?;
        match self.settings(&xs, false) {
            Some(settings) => Ok(self.fused(xs, &settings)?.0),
            None => self.through(xs, &mut |_, _| {}),
        }
    }

    fn through(
        mut self,
        xs: Tensor<B, 3>,
        on_firing: &mut impl FnMut(usize, &Tensor<B, 2>),
    ) -> Result<Self, PlasticityError> {
        finite(xs.clone(), self.tick)?;
        self = self.restored();
        let [batch, ticks, length] = xs.dims();
        self.sequences = Some(batch);
        for tick in 0..ticks {
            let x = xs.clone().narrow(1, tick, 1).reshape([batch, length]);
            self = self.advance(x, on_firing);
        }
        Ok(self)
    }

    /// A tick whose input is known to fit.
    fn advance(
        mut self,
        x: Tensor<B, 2>,
        on_firing: &mut impl FnMut(usize, &Tensor<B, 2>),
    ) -> Self {
        let layers = std::mem::take(&mut self.hierarchy.layers).into_iter();
        let levels = std::mem::take(&mut self.levels).into_iter();
        let mut below = Some(x);
        let mut fired = 0;
        for (index, (mut level, mut layer)) in levels.zip(layers).enumerate() {
            // The first layer that does not fire takes in what came; nothing comes to those above.
            if let Some(output) = below.take() {
                level.window.push(output);
                if self.hierarchy.schedule.fires(index, self.tick) {
                    let output;
                    (level, layer, output) = level.fire(layer, &self.learning);
                    on_firing(index, &output);
                    below = Some(output);
                    fired += 1;
                }
            }
            self.levels.push(level);
            self.hierarchy.layers.push(layer);
        }
        self.feed_back(fired);
        self.tick += 1;
        self
    }

    /// Gives the gains of parents that fired to their children, for the ticks to come.
    fn feed_back(&mut self, fired: usize) {
        let strength = self.hierarchy.top_down;
        if strength == 0.0 {
            return;
        }
        for parent in 1..fired {
            let output = self.levels[parent].output.clone().expect("a parent that fired has one");
            let weight = self.hierarchy.layers[parent].weight.val();
            let gain = product(output, weight).tanh() * strength + 1.0;
            self.levels[parent - 1].gain = Some(gain);
        }
    }
}
