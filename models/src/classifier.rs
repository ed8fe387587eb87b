use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::encoder::Encoder;
use crate::nn::{BnStatistics, Linear, LinearConfig, drawn};

/// An encoder with a linear layer that gives logits: what gradient-based meta-learning adapts.
#[derive(Module, Debug)]
pub struct Classifier<B: Backend, E> {
    /// The network that embeds images.
    pub encoder: E,
    /// Features to logits.
    pub head: Linear<B>,
}

impl<B: Backend, E: Encoder<B>> Classifier<B, E> {
    /// A linear layer, drawn as in PyTorch, on top of an encoder with `features` features, and in its
    /// [precision](Encoder::precision).
    pub fn new(encoder: E, features: usize, ways: usize, device: &B::Device) -> Self {
        let head = LinearConfig::new(features, ways).with_precision(encoder.precision());
        drawn(Self { encoder, head: head.init(device) })
    }

    /// Number of classes.
    pub fn ways(&self) -> usize {
        self.head.weight.dims()[1]
    }

    /// Logits: `[n, c, h, w]` to `[n, ways]`.
    pub fn forward(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        self.head.forward(self.encoder.encode(images, statistics))
    }

    /// Logits for several tasks, `[t, n, c, h, w]` to `[t, n, ways]`, with the parameters of task
    /// after task along dimension 0 of each.
    ///
    /// # Panics
    /// With more than one task, when the encoder [has no lanes](Encoder::has_lanes).
    pub fn forward_lanes(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.head.forward_lanes(self.encode_lanes(images, statistics))
    }

    /// Features for several tasks, `[t, n, c, h, w]` to `[t, n, d]`, likewise.
    ///
    /// # Panics
    /// Like [`forward_lanes`](Self::forward_lanes).
    pub fn encode_lanes(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        match images.dims()[0] {
            1 => self.encoder.encode(images.flatten(0, 1), statistics).unsqueeze(),
            _ => self.encoder.encode_lanes(images, statistics),
        }
    }

    /// The network, to tell whether a checkpoint fits.
    pub fn architecture(&self) -> String {
        format!("{} and {} ways", self.encoder.architecture(), self.ways())
    }
}
