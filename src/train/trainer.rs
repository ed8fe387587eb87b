use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use serde_json::Value;

use super::options::{Folder, Options};
use super::report::Trained;
use super::run::Run;
use super::{Event, TrainError};
use crate::episode::{EpisodeSampler, TaskSource};
use crate::learners::MetaLearner;
use crate::optim::ParameterGroups;
use crate::parallel::{Communicator, Reduction};
use crate::precision::GradScalerConfig;

/// Locked while a thread differentiates.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Meta-trains a learner on episodes, or on the tasks of another [`TaskSource`], step by step.
///
/// Step `s` uses the tasks from `s * accumulate * meta_batch` on, so a run that was stopped and resumed goes
/// through the same episodes as one that never stopped, and ends with the same parameters.
///
/// # Conventions
/// Burn 0.21 can lose gradients when two threads differentiate at once, so a second `fit` waits for
/// the first. Other threads must not differentiate meanwhile.
///
/// # Example
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use burn::backend::{Autodiff, Flex};
/// use fewshot::prelude::*;
///
/// let device = Default::default();
/// let glyphs = Glyphs::generate(&GlyphsConfig::default());
/// let learner = ProtoNet::<Autodiff<Flex>, _>::new(Conv4Config::omniglot().init(&device));
/// let trained = MetaTrainer::new(learner, Adam::new().init())
///     .episodes(glyphs.train.sampler(Protocol::new(5, 1).with_queries(5), 7)?)
///     .steps(2)
///     .fit()?;
/// println!("{}", trained.evaluate(&glyphs.test.sampler(Protocol::new(5, 1), 11)?, 10));
/// # Ok(())
/// # }
/// ```
pub struct MetaTrainer<L, O, S = f64, T = EpisodeSampler> {
    pub(super) learner: L,
    pub(super) optimizer: O,
    pub(super) scheduler: S,
    pub(super) source: Option<T>,
    pub(super) validation: Option<(T, usize)>,
    pub(super) options: Options,
}

impl<L, O, T> MetaTrainer<L, O, f64, T> {
    /// A trainer of 1000 steps of one episode, at a learning rate of 1e-3, that prints lines.
    pub fn new(learner: L, optimizer: O) -> Self {
        Self {
            learner,
            optimizer,
            scheduler: 1e-3,
            source: None,
            validation: None,
            options: Options::default(),
        }
    }
}

impl<L, O, S, T> MetaTrainer<L, O, S, T> {
    /// The source of training tasks.
    pub fn episodes(self, source: T) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Validates on the first `tasks` tasks of `source`; the learner with the best accuracy, or the least
    /// error, is the one that [`fit`](Self::fit) returns.
    pub fn validation(self, source: T, tasks: usize) -> Self {
        Self { validation: Some((source, tasks)), ..self }
    }

    /// Total number of optimizer steps, including those before a resume.
    pub fn steps(self, steps: u64) -> Self {
        self.with_options(|options| options.steps = steps)
    }

    /// Number of tasks in a meta-batch, over which the loss is averaged.
    pub fn meta_batch(self, tasks: u64) -> Self {
        self.with_options(|options| options.meta_batch = tasks)
    }

    /// Gradient accumulation: the number of meta-batches in a step, 1 by default. They are differentiated one
    /// after the other; the gradient is that of one meta-batch so many times as large, in the memory of one.
    pub fn accumulate(self, meta_batches: u64) -> Self {
        self.with_options(|options| options.accumulate = meta_batches)
    }

    /// Number of tasks in a micro-batch, which is differentiated at once: fewer take less memory, and the
    /// gradient of the step is the same within rounding. By default a meta-batch, or the share of a replica if
    /// there are more replicas than meta-batches. `docs/scaling.md` says what else depends on it: running
    /// averages, random numbers, and the last bits. Tasks of [several sizes](TaskSource::has_equal_sizes) are
    /// taken one by one.
    pub fn micro_batch(self, tasks: usize) -> Self {
        self.with_options(|options| options.micro_batch = Some(tasks))
    }

    /// The processes that share the tasks of each step and of validations; by default this process alone,
    /// and `fit` then refuses to run if `mpirun` or `srun` started it with others. Such processes pass
    /// [`world`](crate::parallel::world), or [`Solo`](crate::parallel::Solo) to train independently.
    ///
    /// Rank 0 writes the run folder and calls the observer. If `fit` fails in one process, others may wait
    /// for it forever: [`abort`](Communicator::abort) ends them.
    pub fn communicator(self, communicator: Arc<dyn Communicator>) -> Self {
        self.with_options(|options| options.communicator = Some(communicator))
    }

    /// Reduction of the gradients of several processes, [`Reduction::Exact`] by default.
    pub fn reduction(self, reduction: Reduction) -> Self {
        self.with_options(|options| options.reduction = reduction)
    }

    /// Dynamic loss scaling for a learner that computes in `f16`; others are not scaled.
    pub fn loss_scaling(self, config: GradScalerConfig) -> Self {
        self.with_options(|options| options.scaler = Some(config))
    }

    /// Waits for the device at the end of each phase of a step, so that
    /// [`phase_ms`](super::TrainingReport::phase_ms) measures the device and not the host.
    pub fn profile(self, profile: bool) -> Self {
        self.with_options(|options| options.profile = profile)
    }

    /// The learning rate: a constant, or a scheduler of Burn, advanced once an optimizer step.
    pub fn learning_rate<R: LrScheduler>(self, scheduler: R) -> MetaTrainer<L, O, R, T> {
        MetaTrainer {
            scheduler,
            learner: self.learner,
            optimizer: self.optimizer,
            source: self.source,
            validation: self.validation,
            options: self.options,
        }
    }

    /// Clips the gradients by their global norm.
    pub fn clip_norm(self, norm: f64) -> Self {
        self.with_options(|options| options.clip_norm = Some(norm))
    }

    /// Leaves the frozen parameters of `groups` as they are, and the running averages among them: their gradients are
    /// dropped before the norm of all is taken. A frozen batch-norm still normalises in training as others do, and a
    /// frozen parameter still moves in an inner loop. Rates and decay of groups are the optimizer's to know:
    /// [`FusedOptimizer::with_groups`](crate::optim::FusedOptimizer::with_groups).
    pub fn groups(self, groups: ParameterGroups) -> Self {
        self.with_options(|options| options.groups = Some(groups))
    }

    /// Keeps an exponential moving average of the weights, which is validated, saved as the learner, and returned.
    /// After the step with the index `s`, from 0, `average = weight + d * (average - weight)` with
    /// `d = min(decay, (1 + s) / (10 + s))`; running averages of batch-norm are copied. `decay` is from 0 to below 1.
    ///
    /// # Conventions
    /// The warm-up of `d` is that of TensorFlow's `ExponentialMovingAverage`; nothing corrects a bias, as the average
    /// begins at the weights before the first step.
    ///
    /// # Source
    /// Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.
    pub fn average_weights(self, decay: f64) -> Self {
        self.with_options(|options| options.average_decay = Some(decay))
    }

    /// Steps between validations, 100 by default; there is one after the last step as well.
    pub fn validate_every(self, steps: u64) -> Self {
        self.with_options(|options| options.validate_every = steps)
    }

    /// Early stopping: ends training after this many validations in a row without a new best.
    pub fn patience(self, validations: u32) -> Self {
        self.with_options(|options| options.patience = Some(validations))
    }

    /// Steps between checkpoints, 50 by default; there is one at every validation as well.
    pub fn checkpoint_every(self, steps: u64) -> Self {
        self.with_options(|options| options.checkpoint_every = steps)
    }

    /// Number of steps whose losses and scores are read from the device at once, so that the host does not
    /// wait for it at every step; what is learned is the same. By default up to 32 steps or half a second on
    /// an accelerator, and 1 step on a CPU. Every step is read if losses are scaled, gradients are clipped,
    /// or a step has several micro-batches.
    pub fn read_every(self, steps: u64) -> Self {
        self.with_options(|options| options.read_every = Some(steps))
    }

    /// Writes settings, metrics, curves and checkpoints to a new run folder.
    pub fn run_folder(self, folder: impl Into<PathBuf>) -> Self {
        self.with_options(|options| options.folder = Some(Folder::New(folder.into())))
    }

    /// Resumes the run in this folder; the result is bitwise that of a run that never stopped.
    ///
    /// The backend, the data's classes and every setting but the number of steps must be the same; the
    /// settings of the optimizer and of the learning-rate schedule are not checked. Micro-batches, devices
    /// and processes may differ: gradients are then the same within rounding.
    pub fn resume_from(self, folder: impl Into<PathBuf>) -> Self {
        self.with_options(|options| options.folder = Some(Folder::Old(folder.into())))
    }

    /// Further settings, stored with the run; a resumed run must have the same.
    pub fn settings(self, settings: Value) -> Self {
        self.with_options(|options| options.settings = settings)
    }

    /// Receives the events of training, in place of the lines on standard error.
    pub fn observe(self, observer: impl FnMut(&Event) + 'static) -> Self {
        self.with_options(|options| options.observer = Box::new(observer))
    }

    /// When this becomes true, the current step is finished, a checkpoint written, and
    /// [`TrainError::Interrupted`] returned.
    pub fn interrupt(self, interrupt: Arc<AtomicBool>) -> Self {
        self.with_options(|options| options.interrupt = interrupt)
    }

    fn with_options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Trains.
    ///
    /// # Errors
    /// Settings that make no sense, a run folder that cannot be used, a loss that is not finite, a device
    /// that fails, or an interruption; see [`TrainError`]. The last checkpoint stays in every case.
    pub fn fit<B>(self) -> Result<Trained<L::InnerModule>, TrainError>
    where
        B: AutodiffBackend,
        T: TaskSource,
        L: MetaLearner<B, T::Kind>,
        O: Optimizer<L, B>,
        S: LrScheduler,
    {
        self.fit_on::<B>(Vec::new())
    }

    /// Trains like [`fit`](Self::fit), data-parallel over these devices; on the learner's own device if there are
    /// none.
    ///
    /// One thread submits work to every device before it waits for the first, so asynchronous devices run
    /// concurrently. The optimizer updates the learner on the first device; it is copied to the others
    /// before each step.
    ///
    /// # Errors
    /// Fails like `fit`, and for a device that is named twice.
    pub fn fit_on<B>(self, devices: Vec<B::Device>) -> Result<Trained<L::InnerModule>, TrainError>
    where
        B: AutodiffBackend,
        T: TaskSource,
        L: MetaLearner<B, T::Kind>,
        O: Optimizer<L, B>,
        S: LrScheduler,
    {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Run::<B, L, O, S, T>::guarded(self, devices)
    }
}
