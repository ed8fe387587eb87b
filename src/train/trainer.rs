use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::ElementConversion;
use burn::tensor::backend::AutodiffBackend;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::metrics::Line;
use super::{
    Checkpoint, Evaluation, Evaluator, Event, Progress, RunFolder, StepMetrics, TrainError,
    ValidationMetrics, clip_global_norm, print_lines,
};
use crate::episode::EpisodeSampler;
use crate::learners::{Learner, MetaGradients, MetaLearner};

/// Meta-trains a learner on episodes, step by step.
///
/// Step `s` uses the episodes from `s * meta_batch` on, so a run that was stopped and resumed goes
/// through the same episodes as one that never stopped, and ends with the same parameters.
///
/// # Example
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use burn::backend::{Autodiff, Flex};
/// use burn::optim::AdamConfig;
/// use fewshot::prelude::*;
///
/// let device = Default::default();
/// let glyphs = Glyphs::generate(&GlyphsConfig::default());
/// let learner = ProtoNet::<Autodiff<Flex>, _>::new(Conv4Config::omniglot().init(&device));
/// let trained = MetaTrainer::new(learner, AdamConfig::new().init())
///     .episodes(glyphs.train.sampler(Protocol::new(5, 1).with_queries(5), 7)?)
///     .steps(2)
///     .fit()?;
/// println!("{}", trained.evaluate(&glyphs.test.sampler(Protocol::new(5, 1), 11)?, 10));
/// # Ok(())
/// # }
/// ```
pub struct MetaTrainer<L, O, S = f64> {
    learner: L,
    optimizer: O,
    scheduler: S,
    episodes: Option<EpisodeSampler>,
    validation: Option<(EpisodeSampler, usize)>,
    options: Options,
    settings: Value,
    observer: Box<dyn FnMut(&Event)>,
    interrupt: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Options {
    steps: u64,
    meta_batch: u64,
    clip_norm: Option<f64>,
    validate_every: u64,
    patience: Option<u32>,
    checkpoint_every: u64,
    folder: Option<PathBuf>,
    resume: bool,
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
    /// Training episodes a second in this process, validations not counted; 0 without a step.
    pub episodes_per_s: f64,
    /// How far the run came, with its best validation.
    pub progress: Progress,
    /// Loss of the last step made in this process.
    pub last_loss: Option<f32>,
}

impl<L, O> MetaTrainer<L, O> {
    /// A trainer of 1000 steps of one episode, at a learning rate of 1e-3, that prints lines.
    pub fn new(learner: L, optimizer: O) -> Self {
        Self {
            learner,
            optimizer,
            scheduler: 1e-3,
            episodes: None,
            validation: None,
            options: Options {
                steps: 1000,
                meta_batch: 1,
                clip_norm: None,
                validate_every: 100,
                patience: None,
                checkpoint_every: 50,
                folder: None,
                resume: false,
            },
            settings: Value::Null,
            observer: Box::new(print_lines),
            interrupt: Arc::default(),
        }
    }
}

impl<L, O, S> MetaTrainer<L, O, S> {
    /// The episodes to learn from.
    pub fn episodes(self, sampler: EpisodeSampler) -> Self {
        Self { episodes: Some(sampler), ..self }
    }

    /// Chooses the best learner by its accuracy on the first `episodes` of these.
    pub fn validation(self, sampler: EpisodeSampler, episodes: usize) -> Self {
        Self { validation: Some((sampler, episodes)), ..self }
    }

    /// Optimizer steps in all, those before a resume included.
    pub fn steps(self, steps: u64) -> Self {
        self.with(|options| options.steps = steps)
    }

    /// Episodes in a step; their losses are averaged.
    pub fn meta_batch(self, episodes: u64) -> Self {
        self.with(|options| options.meta_batch = episodes)
    }

    /// A constant learning rate, or any of Burn's schedulers, stepped once an optimizer step.
    pub fn learning_rate<R: LrScheduler>(self, scheduler: R) -> MetaTrainer<L, O, R> {
        MetaTrainer {
            scheduler,
            learner: self.learner,
            optimizer: self.optimizer,
            episodes: self.episodes,
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
        self.with(|options| options.folder = Some(folder.into()))
    }

    /// Goes on with the run that the run folder holds, bit for bit as if it had never stopped.
    pub fn resume(self, resume: bool) -> Self {
        self.with(|options| options.resume = resume)
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
        L: MetaLearner<B>,
        O: Optimizer<L, B>,
        S: LrScheduler,
    {
        Run::<B, L, O, S>::begin(self)?.train()
    }
}

impl<L> Trained<L> {
    /// Tests the learner on the first `episodes` episodes, with running batch-norm statistics.
    pub fn evaluate<B>(&self, sampler: &EpisodeSampler, episodes: usize) -> Evaluation
    where
        B: burn::tensor::backend::Backend,
        L: Learner<B>,
    {
        let device = self.learner.devices().into_iter().next().unwrap_or_default();
        Evaluator::new(episodes).run(&self.learner, sampler, &device)
    }
}

/// Training under way.
struct Run<B: AutodiffBackend, L, O, S> {
    learner: L,
    optimizer: O,
    scheduler: S,
    episodes: EpisodeSampler,
    validation: Option<(EpisodeSampler, usize)>,
    options: Options,
    settings: Value,
    observer: Box<dyn FnMut(&Event)>,
    interrupt: Arc<AtomicBool>,
    device: B::Device,
    folder: Option<RunFolder>,
    progress: Progress,
    /// The best learner as a checkpoint.
    best: Option<Checkpoint>,
    clock: Clock,
    last_loss: Option<f32>,
}

/// Seconds and steps of this process.
struct Clock {
    start: Instant,
    validating: f64,
    steps: u64,
}

impl Clock {
    fn training(&self) -> f64 {
        self.start.elapsed().as_secs_f64() - self.validating
    }
}

impl<B, L, O, S> Run<B, L, O, S>
where
    B: AutodiffBackend,
    L: MetaLearner<B>,
    O: Optimizer<L, B>,
    S: LrScheduler,
{
    fn begin(trainer: MetaTrainer<L, O, S>) -> Result<Self, TrainError> {
        let options = trainer.options;
        let counts = [
            ("the meta-batch", options.meta_batch),
            ("the steps between validations", options.validate_every),
            ("the steps between checkpoints", options.checkpoint_every),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TrainError::Zero(name));
        }
        let device = trainer.learner.devices().into_iter().next().unwrap_or_default();
        let mut run = Self {
            learner: trainer.learner,
            optimizer: trainer.optimizer,
            scheduler: trainer.scheduler,
            episodes: trainer.episodes.ok_or(TrainError::NoEpisodes)?,
            validation: trainer.validation,
            settings: trainer.settings,
            observer: trainer.observer,
            interrupt: trainer.interrupt,
            options,
            device,
            folder: None,
            progress: Progress::default(),
            best: None,
            clock: Clock { start: Instant::now(), validating: 0.0, steps: 0 },
            last_loss: None,
        };
        run.settings = run.all_settings();
        match run.options.folder.clone() {
            Some(folder) if run.options.resume => run.resume(folder)?,
            Some(folder) => {
                let folder = run.folder.insert(RunFolder::create(folder)?);
                folder.write_config(&run.settings)?;
                run.save()?;
            }
            None => {}
        }
        Ok(run)
    }

    /// What must not change between a run and its resumption.
    fn all_settings(&self) -> Value {
        let validation = self.validation.as_ref();
        json!({
            "architecture": self.learner.architecture(),
            "protocol": self.episodes.protocol(),
            "seed": self.episodes.seed(),
            "meta_batch": self.options.meta_batch,
            "clip_norm": self.options.clip_norm,
            "validation": validation.map(|(sampler, episodes)| json!({
                "protocol": sampler.protocol(),
                "seed": sampler.seed(),
                "episodes": episodes,
                "every": self.options.validate_every,
            })),
            "user": self.settings,
        })
    }

    fn resume(&mut self, folder: PathBuf) -> Result<(), TrainError> {
        let path = RunFolder::last(&folder);
        if !path.exists() {
            return Err(TrainError::NothingToResume { folder });
        }
        let last = Checkpoint::read(&path)?;
        if let Some((name, found, wanted)) = difference("", last.settings(), &self.settings) {
            return Err(TrainError::OtherSettings { path, name, found, wanted });
        }
        let device = &self.device;
        let architecture = self.learner.architecture();
        self.learner = last.load::<B, _>(self.learner.clone(), &architecture, device)?;
        self.optimizer =
            self.optimizer.clone().load_record(last.record::<B, _>("optimizer", device)?);
        self.scheduler =
            self.scheduler.clone().load_record::<B>(last.record::<B, _>("scheduler", device)?);
        self.progress = last.progress().clone();
        if self.progress.best.is_some() {
            self.best = Some(Checkpoint::read(&RunFolder::best(&folder))?);
        }
        self.folder = Some(RunFolder::resume(folder, self.progress.step)?);
        Ok(())
    }

    fn train(mut self) -> Result<Trained<L::InnerModule>, TrainError> {
        let steps = self.options.steps;
        (self.observer)(&Event::Started { step: self.progress.step, steps });
        self.clock.start = Instant::now();
        while self.progress.step < steps && !self.exhausted() {
            self.step()?;
            let step = self.progress.step;
            let validating = step.is_multiple_of(self.options.validate_every) || step == steps;
            if validating {
                self.validate()?;
            }
            let interrupted = self.interrupt.load(Ordering::Relaxed);
            let due = step.is_multiple_of(self.options.checkpoint_every);
            if validating || due || interrupted || self.exhausted() {
                self.save()?;
            }
            if interrupted && step < steps {
                return Err(TrainError::Interrupted { step });
            }
        }
        if self.exhausted() && self.progress.step < steps {
            (self.observer)(&Event::StoppedEarly { step: self.progress.step });
        }
        self.finish()
    }

    fn step(&mut self) -> Result<(), TrainError> {
        let first = self.progress.step * self.options.meta_batch;
        let batch = self.episodes.batch::<B>(first..first + self.options.meta_batch, &self.device);
        let MetaGradients { loss, accuracy, gradients } = self.learner.meta_gradients(&batch);
        let loss = loss.into_scalar().elem::<f32>();
        if !loss.is_finite() {
            let step = self.progress.step;
            return Err(TrainError::NonFiniteLoss {
                loss,
                step,
                episode: first,
                kept: self.kept(),
            });
        }
        let gradients = match self.options.clip_norm {
            Some(norm) => clip_global_norm(gradients, &self.learner, norm).0,
            None => gradients,
        };
        let learning_rate = self.scheduler.step();
        self.learner = self.optimizer.step(learning_rate, self.learner.clone(), gradients);
        self.progress.step += 1;
        self.clock.steps += 1;
        self.last_loss = Some(loss);
        let accuracy = 100.0 * accuracy.into_scalar().elem::<f64>();
        self.tell_step(StepMetrics { step: self.progress.step, loss, accuracy, learning_rate })
    }

    fn tell_step(&mut self, metrics: StepMetrics) -> Result<(), TrainError> {
        if let Some(folder) = &mut self.folder {
            folder.log(Line::Step(metrics.clone()))?;
        }
        let left = self.options.steps.saturating_sub(self.progress.step);
        let elapsed = self.clock.start.elapsed().as_secs_f64();
        let episodes_per_s = self.episodes_per_s();
        (self.observer)(&Event::Step {
            metrics,
            steps: self.options.steps,
            episodes_per_s,
            seconds_left: elapsed / self.clock.steps as f64 * left as f64,
        });
        Ok(())
    }

    fn validate(&mut self) -> Result<(), TrainError> {
        let Some((sampler, episodes)) = &self.validation else {
            return Ok(());
        };
        let start = Instant::now();
        let learner = self.learner.valid();
        let found = Evaluator::new(*episodes).run(&learner, sampler, &self.device);
        let best = self.progress.validated(found.accuracy);
        if best {
            self.keep_best()?;
        }
        let metrics = ValidationMetrics {
            step: self.progress.step,
            validation_accuracy: found.accuracy,
            validation_ci95: found.ci95,
        };
        if let Some(folder) = &mut self.folder {
            folder.log(Line::Validation(metrics.clone()))?;
            folder.draw_curves()?;
        }
        self.clock.validating += start.elapsed().as_secs_f64();
        (self.observer)(&Event::Validated { metrics, best });
        Ok(())
    }

    fn keep_best(&mut self) -> Result<(), TrainError> {
        let best = self.learner_checkpoint();
        if let Some(folder) = &self.folder {
            folder.write_best(&best)?;
        }
        self.best = Some(best);
        Ok(())
    }

    fn save(&mut self) -> Result<(), TrainError> {
        let step = self.progress.step;
        if !super::finite::all_finite::<B, _>(&self.learner) {
            return Err(TrainError::NonFiniteParameters { step, kept: self.kept() });
        }
        if self.folder.is_none() {
            return Ok(());
        }
        let last = self
            .learner_checkpoint()
            .with::<B>("optimizer", self.optimizer.to_record())
            .with::<B>("scheduler", self.scheduler.to_record::<B>());
        match &mut self.folder {
            Some(folder) => folder.write_last(&last),
            None => Ok(()),
        }
    }

    fn learner_checkpoint(&self) -> Checkpoint {
        let architecture = self.learner.architecture();
        Checkpoint::new(architecture, self.settings.clone(), self.progress.clone())
            .with::<B>("learner", self.learner.clone().into_record())
    }

    fn finish(mut self) -> Result<Trained<L::InnerModule>, TrainError> {
        if let Some(folder) = &self.folder {
            folder.draw_curves()?;
        }
        if let Some(best) = &self.best {
            let architecture = self.learner.architecture();
            self.learner = best.load::<B, _>(self.learner.clone(), &architecture, &self.device)?;
        }
        let report = TrainingReport {
            steps: self.progress.step,
            episodes_per_s: self.episodes_per_s(),
            last_loss: self.last_loss,
            progress: self.progress,
        };
        Ok(Trained { learner: self.learner.valid(), report })
    }

    fn exhausted(&self) -> bool {
        self.options.patience.is_some_and(|patience| self.progress.since_best >= patience)
    }

    fn episodes_per_s(&self) -> f64 {
        match self.clock.steps {
            0 => 0.0,
            steps => (steps * self.options.meta_batch) as f64 / self.clock.training(),
        }
    }

    fn kept(&self) -> String {
        match &self.folder {
            Some(folder) => format!("; the last good state is in {}", folder.path().display()),
            None => String::new(),
        }
    }
}

/// The first setting that differs: its name, and both values.
fn difference(name: &str, found: &Value, wanted: &Value) -> Option<(String, String, String)> {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let names = found.keys().chain(wanted.keys());
            names.into_iter().find_map(|key| {
                let of = |object: &serde_json::Map<String, Value>| {
                    object.get(key).cloned().unwrap_or(Value::Null)
                };
                difference(key, &of(found), &of(wanted))
            })
        }
        _ if found == wanted => None,
        _ => Some((name.to_owned(), found.to_string(), wanted.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_setting_that_differs_is_named() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}});
        let new = json!({"a": 1, "b": {"c": 2, "d": 4}});
        assert_eq!(difference("", &old, &old), None);
        let expected = Some(("d".to_owned(), "3".to_owned(), "4".to_owned()));
        assert_eq!(difference("", &old, &new), expected);
        let absent = Some(("a".to_owned(), "1".to_owned(), "null".to_owned()));
        assert_eq!(difference("", &old, &json!({"b": {"c": 2, "d": 3}})), absent);
    }
}
