use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{Linear, LinearConfig};

/// Configuration of a [`Film`] layer.
#[derive(Config, Debug)]
pub struct FilmConfig {
    /// Length of the context; 100 in the paper.
    pub context: usize,
    /// Number of channels of the maps.
    pub channels: usize,
}

/// Feature-wise linear modulation of normalised maps by a context, the vector that alone is adapted
/// to a task.
///
/// `y = scale * norm(x) + shift`, where `[scale, shift] = context W + b`, each a number a channel.
///
/// # Conventions
/// The context is zero. The map is drawn as in the authors' code: its weight uniform within
/// `sqrt(3 / context)`, its bias, which is scale and shift at first, within `1 / sqrt(context)`. The
/// next batch-norm makes up for scales that small, and a context counts beside them; with scales of
/// one it counts a tenth of that, and classifying Omniglot is at chance after 150 steps.
///
/// The authors' code modulates after the max-pool, here it is before: this differs where a scale is
/// negative.
///
/// # Source
/// Perez et al., "FiLM: Visual Reasoning with a General Conditioning Layer", AAAI 2018; with a
/// context, Zintgraf et al., "Fast Context Adaptation via Meta-Learning", ICML 2019.
#[derive(Module, Debug)]
pub struct Film<B: Backend> {
    /// The description of a task, `[context]`.
    pub context: Param<Tensor<B, 1>>,
    /// Map from the context to scales and then shifts, `[context]` to `[2 * channels]`.
    pub map: Linear<B>,
}

impl FilmConfig {
    /// Draws the map; the context is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Film<B> {
        let (context, outputs) = (self.context, 2 * self.channels);
        let map = LinearConfig::new(context, outputs).init(device);
        let wide = Initializer::KaimingUniform { gain: 1.0, fan_out_only: false };
        let weight = wide.init_with([context, outputs], Some(context), Some(outputs), device);
        Film { context: Initializer::Zeros.init([context], device), map: Linear { weight, ..map } }
    }
}

impl<B: Backend> Film<B> {
    /// The gain and the shift of a batch-norm that modulates besides: `scale * gamma` and
    /// `scale * beta + shift`.
    ///
    /// # Shapes
    /// - gain, shift and both that return: `[t * channels]`, those of task after task, as the
    ///   parameters here are along dimension 0
    pub fn folded(&self, [gamma, beta]: [Tensor<B, 1>; 2]) -> [Tensor<B, 1>; 2] {
        let channels = self.map.weight.dims()[1] / 2;
        let length = gamma.dims()[0];
        let tasks = length / channels;
        let context = self.context.val();
        let size = context.dims()[0] / tasks;
        let both = self.map.forward_lanes(context.reshape([tasks, 1, size]));
        let half = |first| both.clone().narrow(2, first, channels).reshape([length]);
        let (scale, shift) = (half(0), half(channels));
        [scale.clone() * gamma, scale * beta + shift]
    }
}
