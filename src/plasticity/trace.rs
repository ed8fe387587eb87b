use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};

/// Connections with a fixed and a plastic part, both learned: `y = x (w + alpha * H)`.
///
/// The trace `H` is what a life leaves behind; every task begins with zeros. Weights `w`, degrees
/// of plasticity `alpha` and the rate `eta` are parameters, to be learned by gradients through
/// whole lives. Here `H` is a value that is consumed and given back, with a lane for each task.
///
/// # Conventions
/// Inputs are rows, weights `[inputs, outputs]`, as in the authors' code. First values as in
/// theirs for images: `w` bell-shaped and `alpha` uniform up to 0.01.
///
/// # Source
/// Miconi, Clune and Stanley, "Differentiable plasticity: training plastic neural networks with
/// backpropagation", ICML 2018.
#[derive(Module, Debug)]
pub struct PlasticConnections<B: Backend> {
    /// The fixed part, `[inputs, outputs]`.
    pub weight: Param<Tensor<B, 2>>,
    /// Degree of plasticity of each connection, `[inputs, outputs]`.
    pub alpha: Param<Tensor<B, 2>>,
    /// Rate of the trace, `[1]`.
    pub eta: Param<Tensor<B, 1>>,
    #[module(skip)]
    rule: TraceRule,
}

/// Rule by which a trace changes with inputs `x` and outputs `y`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceRule {
    /// `H <- (1 - eta) H + eta x y^T`, which forgets at every step.
    Hebb,
    /// `H <- H + eta y (x - y H)` for each output, which forgets where an output is active alone.
    #[default]
    Oja,
}

impl<B: Backend> PlasticConnections<B> {
    /// Draws the parameters, with a rate to begin with; the paper's is 0.01.
    pub fn new(
        [inputs, outputs]: [usize; 2],
        rule: TraceRule,
        eta: f64,
        device: &B::Device,
    ) -> Self {
        let draw = |distribution| Tensor::random([inputs, outputs], distribution, device);
        Self {
            weight: Param::from_tensor(draw(Distribution::Normal(0.0, 0.01))),
            alpha: Param::from_tensor(draw(Distribution::Uniform(0.0, 0.01))),
            eta: Param::from_tensor(Tensor::full([1], eta, device)),
            rule,
        }
    }

    /// Rule by which the trace changes.
    pub fn rule(&self) -> TraceRule {
        self.rule
    }

    /// The trace that `tasks` tasks begin with, `[t, inputs, outputs]`.
    pub fn zero_trace(&self, tasks: usize) -> Tensor<B, 3> {
        let [inputs, outputs] = self.weight.dims();
        Tensor::zeros([tasks, inputs, outputs], &self.weight.val().device())
    }

    /// Fixed and plastic parts together, `[t, inputs, outputs]`.
    pub fn effective(&self, trace: Tensor<B, 3>) -> Tensor<B, 3> {
        let lanes = trace.dims();
        let alpha = self.alpha.val().unsqueeze::<3>().expand(lanes);
        trace * alpha + self.weight.val().unsqueeze::<3>().expand(lanes)
    }

    /// The trace after one step with inputs `x`, `[t, 1, inputs]`, and outputs `y`, `[t, 1,
    /// outputs]`.
    pub fn update_trace(
        &self,
        trace: Tensor<B, 3>,
        x: Tensor<B, 3>,
        y: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let eta = self.eta.val().reshape([1, 1, 1]);
        let rated = y.clone() * eta.clone();
        let growth = product(x.swap_dims(1, 2), rated.clone());
        let decayed = match self.rule {
            TraceRule::Hebb => trace.clone() * (eta.neg() + 1.0),
            TraceRule::Oja => trace.clone() * ((rated * y).neg() + 1.0),
        };
        decayed + growth
    }
}
