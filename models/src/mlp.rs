use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use crate::encoder::Encoder;
use crate::nn::{BnStatistics, Linear, LinearConfig, drawn};

/// Configuration of an [`Mlp`].
#[derive(Config, Debug)]
pub struct MlpConfig {
    /// Length of a flattened input, `c * h * w`.
    pub d_input: usize,
    /// Lengths of the layers' outputs, the last one the features.
    #[config(default = "vec![256, 128, 64, 64]")]
    pub layers: Vec<usize>,
}

/// Linear layers with ReLU between them and none after the last; images are flattened.
///
/// # Conventions
/// The default widths are those of the fully connected Omniglot network of the MAML paper, which has
/// batch-norm besides.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl MlpConfig {
    /// Draws the parameters.
    ///
    /// # Panics
    /// Without layers.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Mlp<B> {
        assert!(!self.layers.is_empty(), "an Mlp needs at least one layer");
        let inputs = std::iter::once(self.d_input).chain(self.layers.iter().copied());
        let layers = inputs.zip(&self.layers);
        let layers = layers.map(|(from, &to)| LinearConfig::new(from, to).init(device));
        drawn(Mlp { layers: layers.collect() })
    }
}

impl<B: Backend> Mlp<B> {
    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Length of an output.
    pub fn features(&self) -> usize {
        self.layers[self.layers.len() - 1].weight.dims()[1]
    }

    /// # Shapes
    /// - `x`: `[n, d_input]`
    /// - returns `[n, d]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.through(&self.layers, x, Linear::forward)
    }

    /// The same for several tasks, with the parameters of task after task along dimension 0.
    ///
    /// # Shapes
    /// - `x`: `[t, n, d_input]`
    /// - returns `[t, n, d]`
    pub fn forward_lanes(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.through(&self.layers, x, Linear::forward_lanes)
    }

    /// What the last layer gets, for several tasks likewise.
    pub fn hidden_lanes(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.layers[..self.layers.len() - 1] {
            [] => x,
            layers => relu(self.through(layers, x, Linear::forward_lanes)),
        }
    }

    fn through<const D: usize>(
        &self,
        layers: &[Linear<B>],
        x: Tensor<B, D>,
        forward: impl Fn(&Linear<B>, Tensor<B, D>) -> Tensor<B, D>,
    ) -> Tensor<B, D> {
        let last = layers.len() - 1;
        layers.iter().enumerate().fold(x, |x, (index, layer)| {
            let y = forward(layer, x);
            if index < last { relu(y) } else { y }
        })
    }
}

impl<B: Backend> Encoder<B> for Mlp<B> {
    fn encode(&self, images: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 2> {
        self.forward(images.flatten(1, 3))
    }

    const LANES: bool = true;

    fn encode_lanes(&self, images: Tensor<B, 5>, _: BnStatistics) -> Tensor<B, 3> {
        self.forward_lanes(images.flatten(2, 4))
    }

    fn architecture(&self) -> String {
        let widths = self.layers.iter().map(|layer| layer.weight.dims()[1].to_string());
        let [d_input, _] = self.layers[0].weight.dims();
        format!("mlp({d_input}-{})", widths.collect::<Vec<_>>().join("-"))
    }
}
