use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Precision, linear_stack};

use crate::encoder::{Differentiable, Encoder};
use crate::nn::{BnStatistics, Linear, LinearConfig, drawn};
use crate::weights::Pretrained;

/// Configuration of an [`Mlp`].
#[derive(Config, Debug)]
pub struct MlpConfig {
    /// Length of a flattened input, `c * h * w`.
    pub d_input: usize,
    /// Lengths of the layers' outputs, the last one the features.
    #[config(default = "vec![256, 128, 64, 64]")]
    pub layers: Vec<usize>,
    /// Length of the vector that is put behind every input, and that CAVIA adapts to a task as
    /// `context`; 0 for none. 5 in the authors' regression of sine curves.
    #[config(default = 0)]
    pub context: usize,
    /// Precision of the layers' products; ReLU and features are f32.
    #[config(default = "Precision::F32")]
    pub precision: Precision,
}

/// Linear layers with ReLU between them and none after the last; images are flattened.
///
/// # Conventions
/// The default widths are those of the fully connected Omniglot network of the MAML paper, which
/// has batch-norm besides. A context is zero at first, so it counts for nothing until it is
/// adapted.
///
/// # Source
/// For the context, Zintgraf et al., "Fast Context Adaptation via Meta-Learning", ICML 2019.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
    context: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    precision: Precision,
}

impl MlpConfig {
    /// Draws the parameters.
    ///
    /// # Panics
    /// If there are no layers.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Mlp<B> {
        assert!(!self.layers.is_empty(), "an Mlp needs at least one layer");
        let first = self.d_input + self.context;
        let inputs = std::iter::once(first).chain(self.layers.iter().copied());
        let layers = inputs.zip(&self.layers);
        let layer = |from, to| LinearConfig::new(from, to).with_precision(self.precision);
        let layers = layers.map(|(from, &to)| layer(from, to).init(device));
        let context = || Initializer::Zeros.init([self.context], device);
        let context = (self.context > 0).then(context);
        drawn(Mlp { layers: layers.collect(), context, precision: self.precision })
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
        let last = self.layers.len() - 1;
        self.layers.iter().enumerate().fold(self.with_context(x), |x, (index, layer)| {
            let y = layer.forward(x);
            if index < last { relu(y) } else { y }
        })
    }

    /// The same for several tasks, with the parameters of task after task along dimension 0.
    ///
    /// # Shapes
    /// - `x`: `[t, n, d_input]`
    /// - returns `[t, n, d]`
    pub fn forward_lanes(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.through(&self.layers, x)
    }

    /// Output of the last layer for the activations `hidden` of several tasks.
    pub fn last_lanes(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        let last = self.layers.len() - 1;
        linear_stack(hidden, &[self.layers[last].layer()], self.precision)
    }

    /// Input of the last layer, for several tasks.
    pub fn hidden_lanes(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.layers[..self.layers.len() - 1] {
            [] => self.with_context(x),
            layers => relu(self.through(layers, x)),
        }
    }

    fn through(&self, layers: &[Linear<B>], x: Tensor<B, 3>) -> Tensor<B, 3> {
        let layers: Vec<_> = layers.iter().map(Linear::layer).collect();
        linear_stack(self.with_context(x), &layers, self.precision)
    }

    /// Every example with the context of its task behind it: `[n, d_input]` or `[t, n, d_input]`
    /// to as many of `d_input + context`.
    fn with_context<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let Some(context) = &self.context else { return x };
        let mut dims = x.dims();
        let tasks: usize = dims[..D - 2].iter().product();
        dims[D - 1] = context.dims()[0] / tasks;
        let mut one_each = dims;
        one_each[D - 2] = 1;
        let context = context.val().reshape(one_each).expand(dims);
        Tensor::cat(vec![x, context], D - 1)
    }
}

impl<B: Backend> Pretrained<B> for Mlp<B> {}

impl<B: Backend> Encoder<B> for Mlp<B> {
    fn encode(&self, images: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 2> {
        self.forward(images.flatten(1, 3))
    }

    fn draws(&self) -> bool {
        false
    }

    fn has_lanes(&self) -> bool {
        true
    }

    fn encode_lanes(&self, images: Tensor<B, 5>, _: BnStatistics) -> Tensor<B, 3> {
        self.forward_lanes(images.flatten(2, 4))
    }

    fn encode_tasks(&self, images: Tensor<B, 5>, _: BnStatistics) -> Tensor<B, 3> {
        let [tasks, examples, ..] = images.dims();
        let features = self.forward(images.flatten::<4>(0, 1).flatten(1, 3));
        let [_, length] = features.dims();
        features.reshape([tasks, examples, length])
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn differentiable(&self) -> Differentiable {
        Differentiable::Twice
    }

    fn architecture(&self) -> String {
        let widths = self.layers.iter().map(|layer| layer.weight.dims()[1].to_string());
        let widths = widths.collect::<Vec<_>>().join("-");
        let [first, _] = self.layers[0].weight.dims();
        match self.context.as_ref().map(|context| context.dims()[0]) {
            Some(context) => format!("mlp({}-{widths}, context of {context})", first - context),
            None => format!("mlp({first}-{widths})"),
        }
    }
}
