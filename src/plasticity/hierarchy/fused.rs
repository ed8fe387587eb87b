//! All ticks of a sequence in one launch, where an accelerator has the rule.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::grad_stats;
use fewshot_kernels::local_learning::{
    LayerMemory, Learned, LocalLayer, LocalLearning, LocalMemory, local_learning, local_settings,
};

use super::level::Level;
use super::window::Window;
use super::{Firings, Running};
use crate::plasticity::{PlasticityError, PlasticityRule, Rate};

impl<B: Backend, R: PlasticityRule<B>> Running<B, R> {
    /// The settings of the kernel for the sequences `xs`, with outputs if `returns_outputs`; `None`
    /// where no kernel serves this rule, rate, type or size.
    pub(super) fn settings(
        &self,
        xs: &Tensor<B, 3>,
        returns_outputs: bool,
    ) -> Option<LocalLearning> {
        let weights = self.hierarchy.layers.iter().map(|layer| layer.weight.val().dtype());
        let types = weights.chain([xs.dtype()]);
        local_settings::<B>(&xs.device(), types, || self.built_in(xs.dims()[0], returns_outputs))
    }

    /// The settings, if kernels have the rule, the rate and the activations.
    fn built_in(&self, sequences: usize, returns_outputs: bool) -> Option<LocalLearning> {
        let rule = self.learning.rule.kernel()?;
        let Rate::Fixed(rate) = self.learning.rate else {
            return None;
        };
        let hierarchy = &self.hierarchy;
        let activation = hierarchy.layers[0].activation;
        if hierarchy.layers.iter().any(|layer| layer.activation != activation) {
            return None;
        }
        let layer = |index: usize| LocalLayer {
            neurons: hierarchy.layers[index].neurons(),
            inputs: hierarchy.layers[index].inputs(),
            period: hierarchy.schedule.period(index),
        };
        Some(LocalLearning {
            layers: (0..hierarchy.layers.len()).map(layer).collect(),
            rule,
            rate,
            relative: self.learning.relative,
            aggregate: hierarchy.aggregate,
            activation,
            top_down: hierarchy.top_down,
            sequences,
            returns_outputs,
        })
    }

    /// All ticks of `xs`, which fit, by these settings.
    ///
    /// # Errors
    /// When an input is not finite.
    pub(super) fn fused(
        mut self,
        xs: Tensor<B, 3>,
        settings: &LocalLearning,
    ) -> Result<(Self, Vec<Firings<B>>), PlasticityError> {
        // One launch and one read.
        if !grad_stats::<B>(vec![xs.clone().into_primitive().tensor()], 1.0).1.is_finite() {
            return Err(PlasticityError::NotFinite { tick: self.tick });
        }
        let [sequences, ticks, _] = xs.dims();
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => self.packed(settings, &xs.device()),
        };
        let layers = std::mem::take(&mut self.hierarchy.layers).into_iter();
        let (weights, layers): (Vec<_>, Vec<_>) = layers.map(|layer| layer.taken()).unzip();
        let Learned { weights, memory, outputs } =
            local_learning(settings, self.tick, xs, weights, memory);
        let layers = layers.into_iter().zip(weights).map(|(layer, weight)| layer(weight));
        self.hierarchy.layers = layers.collect();
        self.look_at_bounds(&memory, settings, ticks);
        self.tick += ticks;
        self.sequences = Some(sequences);
        self.memory = Some(memory);
        let firings = self.hierarchy.firings(outputs.into_iter());
        Ok((self, firings))
    }

    /// Reads the power of what layers saw first, until all have a bound.
    fn look_at_bounds(&mut self, memory: &LocalMemory<B>, settings: &LocalLearning, ticks: usize) {
        let learning = &self.learning;
        let known = self.levels.iter().all(|level| level.bound.is_some());
        if known || learning.rate.is_zero() || !learning.rule.settles() {
            return;
        }
        let bounds: Vec<f64> = match learning.relative {
            Some(_) => {
                let fires = |layer| settings.firings(layer, self.tick, ticks) > 0;
                let bound = |layer| if fires(layer) { 1.0 } else { f64::INFINITY };
                (0..self.levels.len()).map(bound).collect()
            }
            None => {
                memory.first_powers().into_iter().map(|power| f64::from(power).recip()).collect()
            }
        };
        for (level, bound) in self.levels.iter_mut().zip(bounds) {
            if level.bound.is_none() {
                level.bounded_by(bound, &learning.rate);
            }
        }
    }

    /// Memory of the levels in one tensor.
    fn packed(&self, settings: &LocalLearning, device: &B::Device) -> LocalMemory<B> {
        let levels = self.levels.iter().zip(&settings.layers);
        let layers = levels.map(|(level, layer)| level.packed(layer.inputs));
        LocalMemory::of(settings, layers.collect(), device)
    }

    /// Moves what the accelerator remembers back into the levels.
    pub(super) fn restored(mut self) -> Self {
        let Some(memory) = self.memory.take() else {
            return self;
        };
        let fed_back = self.hierarchy.top_down != 0.0;
        let last = self.levels.len() - 1;
        let levels = std::mem::take(&mut self.levels).into_iter().zip(memory.layers());
        for (index, (level, layer)) in levels.enumerate() {
            let gain = layer.gain.clone().filter(|_| fed_back && index < last);
            let came = self.came(index);
            let level = level.restored(layer, came);
            self.levels.push(Level { gain, ..level });
        }
        self
    }

    /// Number of outputs from below a layer since it fired last.
    fn came(&self, layer: usize) -> usize {
        let schedule = &self.hierarchy.schedule;
        let below = layer.checked_sub(1).map_or(1, |below| schedule.period(below));
        (self.tick - 1) % schedule.period(layer) / below
    }
}

impl<B: Backend> Level<B> {
    fn packed(&self, inputs: usize) -> LayerMemory<B> {
        let [of_inputs, of_neurons] = self.state.clone();
        LayerMemory {
            power: self.power.clone(),
            seen: self.window.packed(inputs),
            output: self.output.clone(),
            gain: self.gain.clone(),
            of_inputs,
            of_neurons,
        }
    }

    fn restored(self, memory: LayerMemory<B>, came: usize) -> Self {
        let aggregate = self.window.aggregate;
        let seen = memory.seen.filter(|_| came > 0);
        let came = seen.as_ref().map_or(0, |_| came);
        let outputs = seen.map_or_else(Vec::new, |seen| {
            let length = seen.dims()[1] / aggregate.length(1, self.ratio);
            let output = |place| seen.clone().narrow(1, place * length, length);
            (0..aggregate.length(1, came)).map(output).collect()
        });
        let window = Window { aggregate, outputs, came };
        let state = [memory.of_inputs, memory.of_neurons];
        Self { state, window, output: memory.output, power: memory.power, ..self }
    }
}

impl<B: Backend> Window<B> {
    /// In one tensor, `[b, inputs]`, if anything came.
    fn packed(&self, inputs: usize) -> Option<Tensor<B, 2>> {
        let mut all = self.outputs.clone();
        let [batch, length] = all.first()?.dims();
        let missing = inputs - all.len() * length;
        if missing > 0 {
            all.push(Tensor::zeros([batch, missing], &all[0].device()));
        }
        Some(Tensor::cat(all, 1))
    }
}
