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
/// The context is zero, and the map begins with the bias that gives scale one and shift zero there:
/// before the first step, the network is the one without. Its weight is drawn as in PyTorch. The
/// authors' code leaves the bias as PyTorch draws it, so a zero context scales at random there, and
/// modulates after the max-pool; here it is before, which differs where a scale is negative.
///
/// # Source
/// Perez et al., "FiLM: Visual Reasoning with a General Conditioning Layer", AAAI 2018; with a
/// context, Zintgraf et al., "Fast Context Adaptation via Meta-Learning", ICML 2019.
#[derive(Module, Debug)]
pub struct Film<B: Backend> {
    /// What a task is told by, `[context]`.
    pub context: Param<Tensor<B, 1>>,
    /// Context to scales and then shifts, `[context]` to `[2 * channels]`.
    pub map: Linear<B>,
}

impl FilmConfig {
    /// Draws the map's weight; the context is zero, the scale one and the shift zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Film<B> {
        let channels = [self.channels];
        let (scale, shift) = (Tensor::ones(channels, device), Tensor::zeros(channels, device));
        let bias = Param::from_tensor(Tensor::cat(vec![scale, shift], 0));
        let map = LinearConfig::new(self.context, 2 * self.channels).with_bias(false).init(device);
        Film {
            context: Initializer::Zeros.init([self.context], device),
            map: Linear { bias: Some(bias), ..map },
        }
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
