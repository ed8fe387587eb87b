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
use super::{Event, TrainError, print_lines};
use crate::episode::{EpisodeSampler, TaskSource};
use crate::learners::MetaLearner;
use crate::parallel::{Communicator, Reduction};
use crate::precision::GradScalerConfig;

/// Held while a thread differentiates.
pub(super) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

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
    pub(super) settings: Value,
    pub(super) observer: Box<dyn FnMut(&Event)>,
    pub(super) interrupt: Arc<AtomicBool>,
    pub(super) communicator: Option<Arc<dyn Communicator>>,
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
            options: Options {
                steps: 1000,
                meta_batch: 1,
                accumulate: 1,
                micro_batch: None,
                reduction: Reduction::Exact,
                scaler: None,
                clip_norm: None,
                validate_every: 100,
                patience: None,
                checkpoint_every: 50,
                profile: false,
                read_every: None,
                folder: None,
            },
            settings: Value::Null,
            observer: Box::new(print_lines),
            interrupt: Arc::default(),
            communicator: None,
        }
    }
}

impl<L, O, S, T> MetaTrainer<L, O, S, T> {
    /// The episodes, or other tasks, to learn from.
    pub fn episodes(self, source: T) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Chooses the best learner by its accuracy, or its error, on the first `tasks` of these.
    pub fn validation(self, source: T, tasks: usize) -> Self {
        Self { validation: Some((source, tasks)), ..self }
    }

    /// Optimizer steps in all, those before a resume included.
    pub fn steps(self, steps: u64) -> Self {
        self.with(|options| options.steps = steps)
    }

    /// Tasks in a meta-batch, of which a step has one; their losses are averaged.
    pub fn meta_batch(self, tasks: u64) -> Self {
        self.with(|options| options.meta_batch = tasks)
    }

    /// Meta-batches in a step, 1 unless said, one after the other: the gradient is that of a meta-batch
    /// so many times as large, and takes the memory of one.
    ///
    /// Gradients are weighted by the number of queries that they are means over. A step is complete
    /// with its last meta-batch, so that none is ever left over.
    pub fn accumulate(self, meta_batches: u64) -> Self {
        self.with(|options| options.accumulate = meta_batches)
    }

    /// Tasks that are differentiated at once, by which a step's tasks are cut: less memory, and the
    /// same gradient within rounding. Unless said, that is a meta-batch, or the share of a replica
    /// where there are more replicas than meta-batches in a step.
    ///
    /// Every part begins with the running averages that the step began with, and they go the mean of
    /// their ways: a step in many parts moves them less far than one in which a learner tracks task
    /// after task. Those of `burn::nn::BatchNorm` are shared among copies, so that parts follow one
    /// another in them. Random numbers of the backend, as dropout draws, depend on the cut and on the
    /// replicas.
    ///
    /// Steps cut alike are bit for bit the same whatever the number of replicas, on backends that
    /// compute alike whenever they are asked the same, as those of the CPU do.
    pub fn micro_batch(self, tasks: usize) -> Self {
        self.with(|options| options.micro_batch = Some(tasks))
    }

    /// The processes that share the tasks of each step, and of validations; this one alone unless
    /// said, and `fit` refuses then to be one of several that `mpirun` or `srun` started. For those,
    /// [`world`](crate::parallel::world) is what is wanted; [`Solo`](crate::parallel::Solo) lets
    /// each train for itself.
    ///
    /// All must call `fit` with the same settings. The first one keeps the run folder and tells the
    /// observer. Where `fit` fails in one process, others may wait for it for ever:
    /// [`abort`](Communicator::abort) ends them.
    pub fn communicator(self, communicator: Arc<dyn Communicator>) -> Self {
        Self { communicator: Some(communicator), ..self }
    }

    /// How gradients of several processes become one, [`Reduction::Exact`] unless said.
    pub fn reduction(self, reduction: Reduction) -> Self {
        self.with(|options| options.reduction = reduction)
    }

    /// How the loss is scaled, of a learner that computes in `f16`; other ones need no scale.
    pub fn loss_scaling(self, config: GradScalerConfig) -> Self {
        self.with(|options| options.scaler = Some(config))
    }

    /// Waits for the device at the end of each phase of a step, so that
    /// [`TrainingReport::phase_ms`] is what the device took rather than its host.
    pub fn profile(self, profile: bool) -> Self {
        self.with(|options| options.profile = profile)
    }

    /// A constant learning rate, or any of Burn's schedulers, stepped once an optimizer step.
    pub fn learning_rate<R: LrScheduler>(self, scheduler: R) -> MetaTrainer<L, O, R, T> {
        MetaTrainer {
            scheduler,
            learner: self.learner,
            optimizer: self.optimizer,
            source: self.source,
            validation: self.validation,
            options: self.options,
            settings: self.settings,
            observer: self.observer,
            interrupt: self.interrupt,
            communicator: self.communicator,
        }
    }

    /// Scales gradients down to this joint norm.
    pub fn clip_norm(self, norm: f64) -> Self {
        self.with(|options| options.clip_norm = Some(norm))
    }

    /// Steps between validations, 100 unless said; there is one after the last step as well.
    pub fn validate_every(self, steps: u64) -> Self {
        self.with(|options| options.validate_every = steps)
    }

    /// Stops after this many validations in a row without a new best.
    pub fn patience(self, validations: u32) -> Self {
        self.with(|options| options.patience = Some(validations))
    }

    /// Steps between checkpoints, 50 unless said; there is one at every validation as well.
    pub fn checkpoint_every(self, steps: u64) -> Self {
        self.with(|options| options.checkpoint_every = steps)
    }

    /// Reads losses and scores of so many steps at once, and tells the observer and the run folder of
    /// each of them then, so that nobody waits for the device at every step. Before a validation, a
    /// checkpoint and the end all are read; what is learned does not depend on it. Unless said, up to 32
    /// steps or half a second of an accelerator, and one of a processor.
    ///
    /// A loss or gradient that is not finite is found when it is read, and told with its step; nothing is
    /// kept in between. Every step is read where losses are scaled, gradients are clipped, or a step has
    /// several parts.
    pub fn read_every(self, steps: u64) -> Self {
        self.with(|options| options.read_every = Some(steps))
    }

    /// Keeps settings, metrics, curves and checkpoints in a new run folder.
    pub fn run_folder(self, folder: impl Into<PathBuf>) -> Self {
        self.with(|options| options.folder = Some(Folder::New(folder.into())))
    }

    /// Goes on with the run in this folder, bit for bit as if it had never stopped.
    ///
    /// The backend, the data's classes and every setting but the number of steps must be the same;
    /// of the optimizer and the schedule only the state is checked. Micro-batches, devices and
    /// processes may be others: gradients are then the same within rounding. A run made longer keeps the
    /// validation that its earlier end had.
    pub fn resume_from(self, folder: impl Into<PathBuf>) -> Self {
        self.with(|options| options.folder = Some(Folder::Old(folder.into())))
    }

    /// Anything that a run should remember and must find unchanged when it resumes.
    pub fn settings(self, settings: Value) -> Self {
        Self { settings, ..self }
    }

    /// Takes the place of the lines on standard error.
    pub fn observe(self, observer: impl FnMut(&Event) + 'static) -> Self {
        Self { observer: Box::new(observer), ..self }
    }

    /// When this becomes true, the step at hand is finished and saved and
    /// [`TrainError::Interrupted`] returned.
    pub fn interrupt(self, interrupt: Arc<AtomicBool>) -> Self {
        Self { interrupt, ..self }
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
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

    /// As [`fit`](Self::fit), with the tasks of each step shared by these devices; the learner's own
    /// where there is none.
    ///
    /// One thread gives every device its part before it waits for the first, so that devices which
    /// compute on their own do so side by side. The learner moves on the first one, and is copied to
    /// the others before each step.
    ///
    /// # Errors
    /// As `fit`, and for a device that is named twice.
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
