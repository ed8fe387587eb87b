use burn::module::{Module, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor};
use fewshot_kernels::product;
use fewshot_models::BnStatistics;
use fewshot_models::nn::drawn;
use serde_json::{Value, json};

use super::{Adapted, Learner, MetaLearner};
use crate::adapt::AdaptError;
use crate::episode::{Examples, Regression, RegressionBatch};
use crate::plasticity::{PlasticConnections, TraceRule};

/// A recurrent plastic network that stores patterns and completes degraded ones.
///
/// `y <- tanh(y (w + alpha * H) + 20 x)` for all neurons at once, one for each value of a pattern and
/// one that is always on, with the Hebbian trace `H` following the activity of one step and the
/// next. Patterns are shown for a few steps each with pauses between, in several rounds; then each
/// query is shown for a few steps, and the activity that the neurons reach is the answer.
///
/// # Conventions
/// As in the paper's first experiment but for three things: a query begins with the activity that
/// the last pause left, the trace is held while queries are answered, so that they do not touch one
/// another, and every round shows the patterns in one order.
///
/// # Source
/// Miconi, Clune and Stanley, "Differentiable plasticity: training plastic neural networks with
/// backpropagation", ICML 2018, section 4.1.
#[derive(Module, Debug)]
pub struct PlasticMemory<B: Backend> {
    /// The connections among all neurons.
    pub connections: PlasticConnections<B>,
    rounds: usize,
    steps: usize,
    pause: usize,
}

/// How strongly an input drives its neuron.
const DRIVE: f64 = 20.0;

impl<B: Backend> PlasticMemory<B> {
    /// For patterns of `length` values, with the paper's 2 rounds of 6 steps and pauses of 4.
    pub fn new(length: usize, device: &B::Device) -> Self {
        let neurons = length + 1;
        let mut connections =
            PlasticConnections::new([neurons, neurons], TraceRule::Hebb, 0.01, device);
        // Bell-shaped in the authors' code for patterns, uniform in theirs for images.
        let alpha = Tensor::random([neurons, neurons], Distribution::Normal(0.0, 0.01), device);
        connections.alpha = Param::from_tensor(alpha);
        drawn(Self { connections, rounds: 2, steps: 6, pause: 4 })
    }

    /// With another presentation: rounds, steps for which a pattern is shown, and steps of a pause.
    ///
    /// # Panics
    /// Without a round, or when a pattern is not shown.
    pub fn with_presentation(self, rounds: usize, steps: usize, pause: usize) -> Self {
        assert!(rounds > 0 && steps > 0, "patterns are shown in at least one round of one step");
        Self { rounds, steps, pause, ..self }
    }

    /// `[t, n, d, 1, 1]` to the neurons' drive `[t, n, d + 1]`.
    fn drive(&self, patterns: Tensor<B, 5>) -> Tensor<B, 3> {
        let patterns: Tensor<B, 3> = patterns.flatten(2, 4);
        let [tasks, examples, length] = patterns.dims();
        let wanted = self.connections.weight.dims()[0] - 1;
        assert_eq!(length, wanted, "patterns have {length} values, the network {wanted}");
        let on = Tensor::ones([tasks, examples, 1], &patterns.device());
        Tensor::cat(vec![patterns, on], 2) * DRIVE
    }

    /// One step of the network: the next activity, and the trace of this one with the next.
    fn step(&self, state: NetworkState<B>, drive: Tensor<B, 3>) -> NetworkState<B> {
        let connections = self.connections.effective(state.trace.clone());
        let next = (product(state.activity.clone(), connections) + drive).tanh();
        let trace = self.connections.update_trace(state.trace, state.activity, next.clone());
        NetworkState { activity: next, trace }
    }
}

/// The activity and the plastic weights of the networks of tasks.
struct NetworkState<B: Backend> {
    /// `[t, 1, neurons]`
    activity: Tensor<B, 3>,
    /// `[t, neurons, neurons]`
    trace: Tensor<B, 3>,
}

impl<B: Backend> Learner<B, Regression> for PlasticMemory<B> {
    type Adapted = AdaptedMemory<B>;

    /// Stores the inputs of the support; its targets are not looked at.
    fn adapt(&self, support: &Examples<B>) -> AdaptedMemory<B> {
        let patterns = self.drive(support.inputs.clone());
        let [tasks, examples, neurons] = patterns.dims();
        let silence = Tensor::zeros([tasks, 1, neurons - 1], &patterns.device());
        let on = Tensor::full([tasks, 1, 1], DRIVE, &patterns.device());
        let silence = Tensor::cat(vec![silence, on], 2);
        let activity = silence.zeros_like();
        let mut state = NetworkState { activity, trace: self.connections.zero_trace(tasks) };
        for example in (0..self.rounds).flat_map(|_| 0..examples) {
            let pattern = patterns.clone().narrow(1, example, 1);
            for _ in 0..self.steps {
                state = self.step(state, pattern.clone());
            }
            for _ in 0..self.pause {
                state = self.step(state, silence.clone());
            }
        }
        AdaptedMemory {
            learner: self.clone(),
            activity: state.activity,
            connections: self.connections.effective(state.trace),
        }
    }

    fn outputs(&self, batch: &RegressionBatch<B>, _: BnStatistics) -> Tensor<B, 3> {
        self.adapt(&batch.support).predict(batch.queries.inputs.clone())
    }

    fn settings(&self) -> Value {
        json!({ "rounds": self.rounds, "steps": self.steps, "pause": self.pause })
    }

    fn architecture(&self) -> String {
        format!("plastic memory of {} neurons", self.connections.weight.dims()[0])
    }
}

impl<B: AutodiffBackend> MetaLearner<B, Regression> for PlasticMemory<B> {
    const DRAWS: bool = false;

    fn check(&self, batch: &RegressionBatch<B>) -> Result<(), AdaptError> {
        let found = self.connections.weight.dims()[0] - 1;
        match batch.support.targets.dims()[2] {
            wanted if wanted == found => Ok(()),
            wanted => Err(AdaptError::Outputs { wanted, found }),
        }
    }
}

/// A [`PlasticMemory`] that holds the patterns of its tasks.
#[derive(Clone, Debug)]
pub struct AdaptedMemory<B: Backend> {
    learner: PlasticMemory<B>,
    activity: Tensor<B, 3>,
    connections: Tensor<B, 3>,
}

impl<B: Backend> Adapted<B> for AdaptedMemory<B> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let drive = self.learner.drive(queries);
        let shape = drive.dims();
        let first = self.activity.clone().expand(shape);
        let last = (0..self.learner.steps).fold(first, |activity, _| {
            (product(activity, self.connections.clone()) + drive.clone()).tanh()
        });
        last.narrow(2, 0, shape[2] - 1)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
