use burn::module::{Module, Param};
use burn::tensor::activation::sigmoid;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use fewshot_kernels::linear;

/// A step of an LSTM.
///
/// `i, f, g, o = x W + h U + b`; `c' = sigmoid(f) c + sigmoid(i) tanh(g)`; `h' = sigmoid(o)
/// tanh(c')`.
///
/// # Conventions
/// Gates in the order of PyTorch's `nn.LSTMCell`, whose weights are the transposes of these, and
/// which has two biases, that are added.
#[derive(Module, Debug)]
pub struct LstmCell<B: Backend> {
    /// `W`, `[i, 4d]`.
    pub weight_ih: Param<Tensor<B, 2>>,
    /// `U`, `[d, 4d]`.
    pub weight_hh: Param<Tensor<B, 2>>,
    /// `b`, `[4d]`.
    pub bias: Param<Tensor<B, 1>>,
}

/// What an [`LstmCell`] remembers, `[m, d]` each.
#[derive(Clone)]
pub(super) struct LstmState<B: Backend> {
    pub hidden: Tensor<B, 2>,
    pub cell: Tensor<B, 2>,
}

impl<B: Backend> LstmCell<B> {
    /// With weights between minus and plus `1 / sqrt(d)`, as in PyTorch.
    pub(super) fn new(inputs: usize, features: usize, device: &B::Device) -> Self {
        let bound = (features as f64).sqrt().recip();
        let uniform = Distribution::Uniform(-bound, bound);
        let gates = 4 * features;
        Self {
            weight_ih: Param::from_tensor(Tensor::random([inputs, gates], uniform, device)),
            weight_hh: Param::from_tensor(Tensor::random([features, gates], uniform, device)),
            bias: Param::from_tensor(Tensor::random([gates], uniform, device)),
        }
    }

    /// `x W + b` of inputs `[m, i]`.
    pub(super) fn driven(&self, inputs: Tensor<B, 2>) -> Tensor<B, 2> {
        linear(inputs, self.weight_ih.val(), Some(self.bias.val()))
    }

    /// The state after a step that inputs drive by `driven` `[m, 4d]`.
    pub(super) fn step(&self, driven: Tensor<B, 2>, state: LstmState<B>) -> LstmState<B> {
        let gates = driven + linear(state.hidden, self.weight_hh.val(), None);
        let [enter, keep, new, show] = gates
            .chunk(4, 1)
            .try_into()
            .unwrap_or_else(|_| unreachable!("the length of gates is a multiple of four"));
        let cell = sigmoid(keep) * state.cell + sigmoid(enter) * new.tanh();
        LstmState { hidden: sigmoid(show) * cell.clone().tanh(), cell }
    }
}
