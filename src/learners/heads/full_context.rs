use burn::module::{Module, Param};
use burn::tensor::activation::{sigmoid, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use fewshot_kernels::{linear, product};

/// Embeddings of the support that know of each other, and of queries that know of the support.
#[derive(Module, Debug)]
pub struct FullContext<B: Backend> {
    /// Reads the support from first to last.
    pub forwards: LstmCell<B>,
    /// Reads the support from last to first.
    pub backwards: LstmCell<B>,
    /// Reads a query, and what it attends to in the support.
    pub attending: LstmCell<B>,
    steps: Option<usize>,
}

impl<B: Backend> FullContext<B> {
    pub(super) fn new(features: usize, steps: Option<usize>, device: &B::Device) -> Self {
        Self {
            forwards: LstmCell::new(features, features, device),
            backwards: LstmCell::new(features, features, device),
            attending: LstmCell::new(2 * features, features, device),
            steps,
        }
    }

    /// Each of `support` `[t, n, d]` and what both readers say at its place.
    pub(super) fn read_support(&self, support: Tensor<B, 3>) -> Tensor<B, 3> {
        let order: Vec<usize> = (0..support.dims()[1]).collect();
        let reversed: Vec<usize> = order.iter().rev().copied().collect();
        let there = read(&self.forwards, support.clone(), &order);
        let back = read(&self.backwards, support.clone(), &reversed);
        support + there + back
    }

    /// `queries` `[t, q, d]` after they attend to `support` `[t, n, d]`.
    pub(super) fn attend(&self, queries: Tensor<B, 3>, support: Tensor<B, 3>) -> Tensor<B, 3> {
        let dims @ [tasks, asked, features] = queries.dims();
        let flat = queries.reshape([tasks * asked, features]);
        let mut state = LstmState { hidden: flat.clone(), cell: flat.zeros_like() };
        for _ in 0..self.steps.unwrap_or(support.dims()[1]) {
            let hidden = state.hidden.clone().reshape(dims);
            let attention = softmax(product(hidden, support.clone().swap_dims(1, 2)), 2);
            let seen = product(attention, support.clone()).reshape([tasks * asked, features]);
            let driven = self.attending.driven(Tensor::cat(vec![flat.clone(), seen], 1));
            state = self.attending.step(driven, state);
            state.hidden = state.hidden + flat.clone();
        }
        state.hidden.reshape(dims)
    }
}

/// Outputs of `cell` at each place of `support` `[t, n, d]`, which the cell reads in this order.
fn read<B: Backend>(cell: &LstmCell<B>, support: Tensor<B, 3>, order: &[usize]) -> Tensor<B, 3> {
    let [tasks, examples, features] = support.dims();
    // Places first, so that each is a block of rows.
    let by_place = support.swap_dims(0, 1).reshape([examples * tasks, features]);
    let driven = cell.driven(by_place.clone());
    let zeros = Tensor::zeros([tasks, features], (&by_place.device(), by_place.dtype()));
    let mut state = LstmState { hidden: zeros.clone(), cell: zeros };
    let mut outputs = vec![None; examples];
    for &place in order {
        state = cell.step(driven.clone().narrow(0, place * tasks, tasks), state);
        outputs[place] = Some(state.hidden.clone().unsqueeze_dim::<3>(1));
    }
    Tensor::cat(outputs.into_iter().flatten().collect(), 1)
}

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

/// State of an [`LstmCell`], `[m, d]` each.
#[derive(Clone)]
struct LstmState<B: Backend> {
    hidden: Tensor<B, 2>,
    cell: Tensor<B, 2>,
}

impl<B: Backend> LstmCell<B> {
    /// With weights between minus and plus `1 / sqrt(d)`, as in PyTorch.
    fn new(inputs: usize, features: usize, device: &B::Device) -> Self {
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
    fn driven(&self, inputs: Tensor<B, 2>) -> Tensor<B, 2> {
        linear(inputs, self.weight_ih.val(), Some(self.bias.val()))
    }

    /// The state after a step that inputs drive by `driven` `[m, 4d]`.
    fn step(&self, driven: Tensor<B, 2>, state: LstmState<B>) -> LstmState<B> {
        let gates = driven + linear(state.hidden, self.weight_hh.val(), None);
        let [input, forget, candidate, output] = gates
            .chunk(4, 1)
            .try_into()
            .unwrap_or_else(|_| unreachable!("the length of gates is a multiple of four"));
        let cell = sigmoid(forget) * state.cell + sigmoid(input) * candidate.tanh();
        LstmState { hidden: sigmoid(output) * cell.clone().tanh(), cell }
    }
}
