use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
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
/// query is shown for a few steps, and what the neurons come to is the answer.
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
    connections: PlasticConnections<B>,
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
        let connections =
            PlasticConnections::new([neurons, neurons], TraceRule::Hebb, 0.01, device);
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

    /// The connections among all neurons.
    pub fn connections(&self) -> &PlasticConnections<B> {
        &self.connections
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

    /// One step of life: the next activity, and the trace of this one with the next.
    fn live(&self, life: Life<B>, drive: Tensor<B, 3>) -> Life<B> {
        let connections = self.connections.effective(life.trace.clone());
        let next = (life.activity.clone().matmul(connections) + drive).tanh();
        let trace = self.connections.remember(life.trace, life.activity, next.clone());
        Life { activity: next, trace }
    }
}

/// What a task has left in its network.
struct Life<B: Backend> {
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
        let mut life = Life { activity, trace: self.connections.blank(tasks) };
        for example in (0..self.rounds).flat_map(|_| 0..examples) {
            let pattern = patterns.clone().narrow(1, example, 1);
            for _ in 0..self.steps {
                life = self.live(life, pattern.clone());
            }
            for _ in 0..self.pause {
                life = self.live(life, silence.clone());
            }
        }
        AdaptedMemory {
            learner: self.clone(),
            activity: life.activity,
            connections: self.connections.effective(life.trace),
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
            (activity.matmul(self.connections.clone()) + drive.clone()).tanh()
        });
        last.narrow(2, 0, shape[2] - 1)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use burn::module::{AutodiffModule, Param};
    use burn::optim::Optimizer;

    use super::*;
    use crate::episode::{PatternSampler, TaskSource};
    use crate::optim::Adam;

    type A = Autodiff<Flex>;

    const LENGTH: usize = 20;

    fn patterns(seed: u64) -> PatternSampler {
        PatternSampler::new(LENGTH, 3, 2, seed).unwrap()
    }

    fn memory<B: Backend>() -> PlasticMemory<B> {
        let device = Default::default();
        B::seed(&device, 1);
        PlasticMemory::new(LENGTH, &device).with_presentation(1, 3, 2)
    }

    /// Share of all values whose sign is wrong, on new patterns.
    fn wrong(memory: &PlasticMemory<Flex>) -> f32 {
        let batch: RegressionBatch<Flex> = patterns(2).tasks(0..100, &Default::default());
        let found = memory.outputs(&batch, BnStatistics::Running).sign();
        let differs = found.not_equal(batch.queries.targets).float().mean();
        differs.into_data().to_vec::<f32>().unwrap()[0]
    }

    #[test]
    fn training_teaches_to_complete_patterns_that_were_never_seen() {
        let mut learner = memory::<A>();
        let untrained = wrong(&learner.valid());
        let mut optimizer = Adam::new().init();
        for step in 0..150 {
            let batch = patterns(1).tasks(step * 8..(step + 1) * 8, &Default::default());
            let gradients = learner.meta_gradients(&batch).gradients;
            learner = optimizer.step(1e-2, learner, gradients);
        }
        let trained = learner.valid();
        let found = wrong(&trained);
        let mut forgetful = trained;
        forgetful.connections.eta = Param::from_tensor(Tensor::zeros([1], &Default::default()));
        let without = wrong(&forgetful);
        // Half of the values are missing, and half of those are guessed.
        assert!((without - 0.25).abs() < 0.05, "{without} without a trace");
        assert!(untrained > 0.15 && found < 0.05, "{untrained} before, {found} after");
    }

    #[test]
    fn tasks_and_queries_do_not_touch_one_another() {
        let memory = memory::<Flex>();
        let both: RegressionBatch<Flex> = patterns(1).tasks(0..2, &Default::default());
        let read = |tensor: Tensor<Flex, 3>| tensor.into_data().to_vec::<f32>().unwrap();
        let outputs = memory.outputs(&both, BnStatistics::Running);
        let alone = patterns(1).tasks(1..2, &Default::default());
        let adapted = memory.adapt(&alone.support);
        let query = adapted.predict(alone.queries.inputs.narrow(1, 1, 1));
        let expected = outputs.narrow(0, 1, 1).narrow(1, 1, 1);
        for (found, expected) in read(query).iter().zip(read(expected)) {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }

    #[test]
    fn patterns_of_another_length_are_refused() {
        let sampler = PatternSampler::new(LENGTH + 2, 3, 2, 1).unwrap();
        let batch = sampler.tasks::<A>(0..1, &Default::default());
        let error = memory::<A>().check(&batch).unwrap_err();
        assert_eq!(error, AdaptError::Outputs { wanted: LENGTH + 2, found: LENGTH });
    }
}
