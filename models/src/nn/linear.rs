use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::linear;

/// Configuration of a [`Linear`] layer.
#[derive(Config, Debug)]
pub struct LinearConfig {
    /// Length of the input vectors.
    pub d_input: usize,
    /// Length of the output vectors.
    pub d_output: usize,
    /// Whether a learned vector is added.
    #[config(default = true)]
    pub bias: bool,
}

/// `y = x W + b`, as `burn::nn::Linear`, but differentiable any number of times.
///
/// # Conventions
/// The weight is `[d_input, d_output]` as in Burn, the transpose of PyTorch's; loading PyTorch
/// weights through `burn-store` turns it. Drawn as in PyTorch, uniform within `1 / sqrt(d_input)`.
#[derive(Module, Debug)]
pub struct Linear<B: Backend> {
    /// Weight, `[d_input, d_output]`.
    pub weight: Param<Tensor<B, 2>>,
    /// Bias, `[d_output]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl LinearConfig {
    /// Draws the parameters.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Linear<B> {
        let fan = (Some(self.d_input), Some(self.d_output));
        let uniform = Initializer::KaimingUniform { gain: 1.0 / 3f64.sqrt(), fan_out_only: false };
        Linear {
            weight: uniform.init_with([self.d_input, self.d_output], fan.0, fan.1, device),
            bias: self.bias.then(|| uniform.init_with([self.d_output], fan.0, fan.1, device)),
        }
    }
}

impl<B: Backend> Linear<B> {
    /// # Shapes
    /// - `x`: `[n, d_input]`
    /// - returns `[n, d_output]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }

    /// The same for several tasks, each with parameters of its own: the weight is
    /// `[t * d_input, d_output]` and the bias `[t * d_output]`, task after task.
    ///
    /// # Shapes
    /// - `x`: `[t, n, d_input]`
    /// - returns `[t, n, d_output]`
    pub fn forward_lanes(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [tasks, examples, inputs] = x.dims();
        let [_, outputs] = self.weight.dims();
        let (device, dtype) = (x.device(), x.dtype());
        let y = x.matmul(self.weight.val().reshape([tasks, inputs, outputs]));
        match &self.bias {
            // A product, since adding a bias for each task, and summing its gradient, is far
            // slower.
            Some(bias) => {
                let ones = Tensor::ones([tasks, examples, 1], (&device, dtype));
                y + ones.matmul(bias.val().reshape([tasks, 1, outputs]))
            }
            None => y,
        }
    }
}
