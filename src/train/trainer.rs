use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::Run;
use super::{Evaluation, Evaluator, Event, Progress, TrainError, print_lines};
use crate::episode::{EpisodeSampler, TaskSource};
use crate::learners::{Learner, MetaLearner};

/// Held while a thread differentiates.
pub(super) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Meta-trains a learner on episodes, or on the tasks of another [`TaskSource`], step by step.
///
/// Step `s` uses the tasks from `s * meta_batch` on, so a run that was stopped and resumed goes
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
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) steps: u64,
    pub(super) meta_batch: u64,
    pub(super) clip_norm: Option<f64>,
    pub(super) validate_every: u64,
    pub(super) patience: Option<u32>,
    pub(super) checkpoint_every: u64,
    pub(super) folder: Option<Folder>,
}

/// Where a run is kept.
#[derive(Clone, Debug)]
pub(super) enum Folder {
    New(PathBuf),
    Old(PathBuf),
}

/// A learner at the end of its training, without the autodiff that trained it.
#[derive(Clone, Debug)]
pub struct Trained<L> {
    /// The learner at its best validation, or at the last step where none was made.
    pub learner: L,
    /// How training went.
    pub report: TrainingReport,
}

/// How training went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrainingReport {
    /// Steps done, those before a resume included.
    pub steps: u64,
    /// Training tasks a second in this process, validations not counted; 0 without a step.
    pub episodes_per_s: f64,
    /// How far the run came, with its best validation.
    pub progress: Progress,
    /// Loss of the last step made in this process.
    pub last_loss: Option<f32>,
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
                clip_norm: None,
                validate_every: 100,
                patience: None,
                checkpoint_every: 50,
                folder: None,
            },
            settings: Value::Null,
            observer: Box::new(print_lines),
            interrupt: Arc::default(),
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

    /// Tasks in a step; their losses are averaged.
    pub fn meta_batch(self, tasks: u64) -> Self {
        self.with(|options| options.meta_batch = tasks)
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

    /// Keeps settings, metrics, curves and checkpoints in a new run folder.
    pub fn run_folder(self, folder: impl Into<PathBuf>) -> Self {
        self.with(|options| options.folder = Some(Folder::New(folder.into())))
    }

    /// Goes on with the run in this folder, bit for bit as if it had never stopped.
    ///
    /// The backend, the data's classes and every setting but the number of steps must be the same;
    /// of the optimizer and the schedule only the state is checked. A run made longer keeps the
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
    /// Settings that make no sense, a run folder that cannot be used, a loss that is not finite, or
    /// an interruption; see [`TrainError`]. The last checkpoint stays in every case.
    pub fn fit<B>(self) -> Result<Trained<L::InnerModule>, TrainError>
    where
        B: AutodiffBackend,
        T: TaskSource,
        L: MetaLearner<B, T::Kind>,
        O: Optimizer<L, B>,
        S: LrScheduler,
    {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Run::<B, L, O, S, T>::begin(self)?.train()
    }
}

impl<L> Trained<L> {
    /// Tests the learner on the first `episodes` episodes, with its own batch-norm
    /// [`statistics`](Learner::statistics).
    pub fn evaluate<B>(&self, sampler: &EpisodeSampler, episodes: usize) -> Evaluation
    where
        B: burn::tensor::backend::Backend,
        L: Learner<B>,
    {
        let device = self.learner.devices().into_iter().next().unwrap_or_default();
        Evaluator::new(episodes).run(&self.learner, sampler, &device)
    }
}
