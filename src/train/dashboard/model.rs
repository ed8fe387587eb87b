use std::marker::PhantomData;
use std::sync::PoisonError;

use burn::module::{AutodiffModule, Module};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::ElementConversion;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_train::{InferenceStep, TrainOutput, TrainStep};
use fewshot_kernels::TaskLossOptions;
use fewshot_models::nn::drawn;

use super::{Outcome, TaskLoader, Tasks};
use crate::adapt::AdaptError;
use crate::episode::{Classification, TaskKind, TaskSource};
use crate::learners::{Learner, MetaGradients, MetaLearner};
use crate::precision::{LossScale, Precision};
use crate::train::trainer::ONE_AT_A_TIME;

/// A learner that `burn-train` cannot train.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaModelError {
    /// It cannot be trained on the tasks.
    #[error(transparent)]
    Learner(#[from] AdaptError),
    /// It computes in `f16`, whose loss `burn-train` does not scale.
    #[error("burn-train scales no loss, as f16 needs: train in bf16 or f32, or by a MetaTrainer")]
    Unscaled,
}

/// A learner as a model of `burn-train`: trained by [`MetaLearner::meta_gradients`], validated by
/// [`Learner::outputs`] with the learner's own [`statistics`](Learner::statistics).
///
/// Its record is the learner's, under the name `learner`.
#[derive(Module, Debug)]
pub struct MetaModel<B: Backend, L, K = Classification> {
    learner: L,
    /// Steps done, of which the learner has been told.
    #[module(skip)]
    steps: u64,
    #[module(skip)]
    kind: PhantomData<K>,
    _backend: PhantomData<B>,
}

impl<B: AutodiffBackend, L, K: TaskKind> MetaModel<B, L, K>
where
    L: MetaLearner<B, K>,
{
    /// `learner` at the step that `tasks` begin with, with all its parameters drawn.
    ///
    /// # Errors
    /// When the learner cannot be trained on such tasks, or computes in `f16`.
    pub fn new<T>(learner: L, tasks: &TaskLoader<B, T>) -> Result<Self, MetaModelError>
    where
        T: TaskSource<Kind = K>,
    {
        if learner.precision() == Precision::MixedF16 {
            return Err(MetaModelError::Unscaled);
        }
        let mut learner = drawn::<B, L>(learner);
        let device = learner.devices().into_iter().next().unwrap_or_default();
        let first = tasks.source.tasks::<B>(0..1, &device);
        alone(|| learner.check(&first))?;
        let steps = tasks.next_step();
        learner.at_step(steps);
        Ok(Self { learner, steps, kind: PhantomData, _backend: PhantomData })
    }

    fn expect_step(&self, step: u64) {
        assert_eq!(
            step, self.steps,
            "the tasks are those of step {step}, but the model has done {} steps: make it after \
             the checkpoint of the tasks is set, and enlarge the meta-batch where gradients would \
             be accumulated",
            self.steps
        );
    }
}

impl<B: Backend, L, K> MetaModel<B, L, K> {
    /// The learner.
    pub fn learner(&self) -> &L {
        &self.learner
    }

    /// The learner, for example at the end of its training.
    pub fn into_learner(self) -> L {
        self.learner
    }
}

impl<B, L, K> TrainStep for MetaModel<B, L, K>
where
    B: AutodiffBackend,
    K: TaskKind<Batch<B>: Send + 'static>,
    L: MetaLearner<B, K>,
{
    type Input = Tasks<B, K>;
    type Output = Outcome<B::InnerBackend, K>;

    /// # Panics
    /// When the loss or its gradient is not finite, for `burn-train` knows no other way to stop, and
    /// on tasks of another step than the one that the model is at.
    fn step(&self, tasks: Tasks<B, K>) -> TrainOutput<Self::Output> {
        let Tasks { step, batch } = tasks;
        self.expect_step(step);
        let MetaGradients { loss, score, gradients } =
            alone(|| self.learner.meta_gradients(&batch, LossScale::ONE));
        let found = loss.clone().into_scalar().elem::<f32>();
        assert!(found.is_finite(), "the loss is {found} at step {step}; training stopped");
        let [tasks, queries] = sizes::<B, K>(&batch);
        let item = Outcome { loss, scores: score, tasks, queries, kind: PhantomData };
        let gradients = gradients.unscale::<B, L>(&self.learner);
        let grads = gradients.unwrap_or_else(|error| panic!("at step {step}: {error}"));
        let grads = grads.into_gradients();
        TrainOutput { grads, item }
    }

    fn optimize<C, O>(self, optimizer: &mut O, rate: f64, gradients: GradientsParams) -> Self
    where
        C: AutodiffBackend,
        O: Optimizer<Self, C>,
        Self: AutodiffModule<C>,
    {
        let mut model = optimizer.step(rate, self, gradients);
        model.steps += 1;
        model.learner.at_step(model.steps);
        model
    }
}

impl<B, L, K> InferenceStep for MetaModel<B, L, K>
where
    B: Backend,
    K: TaskKind<Batch<B>: Send + 'static>,
    L: Learner<B, K>,
{
    type Input = Tasks<B, K>;
    type Output = Outcome<B, K>;

    fn step(&self, tasks: Tasks<B, K>) -> Outcome<B, K> {
        let Tasks { batch, .. } = tasks;
        // A gradient-based learner differentiates in a test as well.
        let outputs = alone(|| self.learner.outputs(&batch, self.learner.statistics()));
        let [tasks, queries] = sizes::<B, K>(&batch);
        let targets = K::judged(&batch, 0..tasks).targets;
        let options = TaskLossOptions { factor: 1.0 / tasks as f64, ..Default::default() };
        let loss = K::loss_with(outputs.clone(), targets.clone(), options);
        let scores = K::scores(outputs, targets);
        Outcome { loss, scores, tasks, queries, kind: PhantomData }
    }
}

/// The number of tasks, and of their queries together.
fn sizes<B: Backend, K: TaskKind>(batch: &K::Batch<B>) -> [usize; 2] {
    let [tasks, queries, ..] = K::queries(batch).dims();
    [tasks, tasks * queries]
}

/// Waits until no other thread trains.
fn alone<R>(work: impl FnOnce() -> R) -> R {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}
