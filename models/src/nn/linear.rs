use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{LinearLayer, Precision, linear_stack};

/// Configuration of a [`Linear`] layer.
#[derive(Config, Debug)]
pub struct LinearConfig {
    /// Length of the input vectors.
    pub d_input: usize,
    /// Length of the output vectors.
    pub d_output: usize,
    /// `true` to add a learned vector to the product.
    #[config(default = true)]
    pub bias: bool,
    /// Precision of the product; the result is f32 under a low one.
    #[config(default = "Precision::F32")]
    pub precision: Precision,
}

/// `y = x W + b`, as `burn::nn::Linear`, but differentiable any number of times.
///
/// # Conventions
/// The weight is `[d_input, d_output]` as in Burn, the transpose of PyTorch's; [`load_weights`](crate::Pretrained::load_weights)
/// turns PyTorch's. Drawn as in PyTorch, uniform within `1 / sqrt(d_input)`.
#[derive(Module, Debug)]
pub struct Linear<B: Backend> {
    /// Weight, `[d_input, d_output]`.
    pub weight: Param<Tensor<B, 2>>,
    /// Bias, `[d_output]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Precision of the product.
    #[module(skip)]
    pub precision: Precision,
}

impl LinearConfig {
    /// Draws the parameters.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Linear<B> {
        let fan = (Some(self.d_input), Some(self.d_output));
        let uniform = Initializer::KaimingUniform { gain: 1.0 / 3f64.sqrt(), fan_out_only: false };
        Linear {
            weight: uniform.init_with([self.d_input, self.d_output], fan.0, fan.1, device),
            bias: self.bias.then(|| uniform.init_with([self.d_output], fan.0, fan.1, device)),
            precision: self.precision,
        }
    }
}

impl<B: Backend> Linear<B> {
    /// # Shapes
    /// - `x`: `[n, d_input]`
    /// - returns `[n, d_output]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.precision.linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }

    /// The same for several tasks, each with parameters of its own: the weight is
    /// `[t * d_input, d_output]` and the bias `[t * d_output]`, task after task.
    ///
    /// # Shapes
    /// - `x`: `[t, n, d_input]`
    /// - returns `[t, n, d_output]`
    pub fn forward_lanes(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        linear_stack(x, &[self.layer()], self.precision)
    }

    pub(crate) fn layer(&self) -> LinearLayer<B> {
        LinearLayer { weight: self.weight.val(), bias: self.bias.as_ref().map(Param::val) }
    }
}
