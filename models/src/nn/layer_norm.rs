use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::layer_norm;

/// Layer normalisation with the record of `burn::nn::LayerNorm`, in one pass on a host.
#[derive(Module, Debug)]
pub(crate) struct LayerNorm<B: Backend> {
    gamma: Param<Tensor<B, 1>>,
    beta: Param<Tensor<B, 1>>,
    epsilon: f64,
}

impl<B: Backend> LayerNorm<B> {
    /// The norm of rows of this length: gain one, shift zero.
    pub(crate) fn new(length: usize, epsilon: f64, device: &B::Device) -> Self {
        let gamma = Initializer::Ones.init([length], device);
        Self { gamma, beta: Initializer::Zeros.init([length], device), epsilon }
    }

    /// Normalises each row of `x` `[n, d]`.
    pub(crate) fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        layer_norm(x, self.map(), self.epsilon)
    }

    /// Gain and shift, both `[d]`.
    pub(crate) fn map(&self) -> [Tensor<B, 1>; 2] {
        [self.gamma.val(), self.beta.val()]
    }

    /// Term added to the variance.
    pub(crate) fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// Length of a row.
    pub(crate) fn length(&self) -> usize {
        self.gamma.dims()[0]
    }
}
