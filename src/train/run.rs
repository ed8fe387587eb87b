use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::ElementConversion;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::nn::drawn;
use serde_json::{Value, json};

use super::finite::all_finite;
use super::metrics::Line;
use super::trainer::{Folder, MetaTrainer, Options, Trained, TrainingReport};
use super::{
    Checkpoint, Evaluator, Event, Progress, RunFolder, StepMetrics, TrainError, ValidationMetrics,
    clip_global_norm,
};
use crate::episode::{Measure, TaskKind, TaskSource};
use crate::learners::{MetaGradients, MetaLearner};
use crate::settings::difference;

/// Training under way.
pub(super) struct Run<B: AutodiffBackend, L, O, S, T> {
    /// Always there but for the time of an optimizer's step, which wants the only copy.
    learner: Option<L>,
    optimizer: O,
    scheduler: S,
    source: T,
    validation: Option<(T, usize)>,
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

impl<B, L, O, S, T> Run<B, L, O, S, T>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
    S: LrScheduler,
{
    pub(super) fn begin(trainer: MetaTrainer<L, O, S, T>) -> Result<Self, TrainError> {
        let options = trainer.options;
        let counts = [
            ("the meta-batch", options.meta_batch),
            ("the steps between validations", options.validate_every),
            ("the steps between checkpoints", options.checkpoint_every),
            ("the patience", options.patience.map_or(1, u64::from)),
            ("the validation", trainer.validation.as_ref().map_or(1, |(_, count)| *count as u64)),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TrainError::Zero(name));
        }
        if let Some(norm) = options.clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return Err(TrainError::ClipNorm(norm));
        }
        let Options { steps, meta_batch, .. } = options;
        if steps.checked_mul(meta_batch).is_none() {
            return Err(TrainError::TooManyEpisodes { steps, meta_batch });
        }
        let device = trainer.learner.devices().into_iter().next().unwrap_or_default();
        let mut run = Self {
            learner: Some(drawn::<B, _>(trainer.learner)),
            optimizer: trainer.optimizer,
            scheduler: trainer.scheduler,
            source: trainer.source.ok_or(TrainError::NoEpisodes)?,
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
        let first = run.source.tasks::<B>(0..1, &run.device);
        run.learner().check(&first)?;
        run.settings = run.all_settings();
        match run.options.folder.clone() {
            Some(Folder::Old(folder)) => run.resume(folder)?,
            Some(Folder::New(folder)) => {
                let folder = run.folder.insert(RunFolder::create(folder)?);
                folder.write_config(&run.settings)?;
                run.save()?;
            }
            None => {}
        }
        Ok(run)
    }

    fn learner(&self) -> &L {
        self.learner.as_ref().expect("every step puts the learner back")
    }

    /// What must not change between a run and its resumption.
    fn all_settings(&self) -> Value {
        let validation = self.validation.as_ref();
        json!({
            "backend": B::InnerBackend::name(&self.device),
            "architecture": self.learner().architecture(),
            "learner": self.learner().settings(),
            "tasks": self.source.settings(),
            "meta_batch": self.options.meta_batch,
            "clip_norm": self.options.clip_norm,
            "validation": validation.map(|(source, tasks)| json!({
                "tasks": source.settings(),
                "count": tasks,
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
        self.learner = Some(last.load::<B, _, _>(self.learner().clone(), device)?);
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

    pub(super) fn train(mut self) -> Result<Trained<L::InnerModule>, TrainError> {
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
        let tasks = first..first + self.options.meta_batch;
        let batch = self.source.tasks::<B>(tasks, &self.device);
        if let Some(learner) = &mut self.learner {
            learner.at_step(self.progress.step);
        }
        let MetaGradients { loss, score, gradients } = self.learner().meta_gradients(&batch);
        let loss = loss.into_scalar().elem::<f32>();
        if !loss.is_finite() {
            return Err(TrainError::NonFiniteLoss {
                loss,
                step: self.progress.step,
                episode: first,
                divergence: self.learner().divergence(&batch),
                kept: self.kept(),
            });
        }
        let gradients = match self.options.clip_norm {
            Some(limit) => {
                let (gradients, norm) = clip_global_norm(gradients, self.learner(), limit);
                if !norm.is_finite() {
                    let step = self.progress.step;
                    return Err(TrainError::NonFiniteGradient { step, kept: self.kept() });
                }
                gradients
            }
            None => gradients,
        };
        let learning_rate = self.scheduler.step();
        let learner = self.learner.take().expect("every step puts the learner back");
        self.learner = Some(self.optimizer.step(learning_rate, learner, gradients));
        self.progress.step += 1;
        self.clock.steps += 1;
        self.last_loss = Some(loss);
        let accuracy = match T::Kind::MEASURE {
            Measure::Accuracy => Some(T::Kind::MEASURE.unit() * score.into_scalar().elem::<f64>()),
            Measure::SquaredError => None,
        };
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
        self.check_parameters()?;
        let Some((source, tasks)) = &self.validation else {
            return Ok(());
        };
        let start = Instant::now();
        let learner = self.learner().valid();
        let found = Evaluator::new(*tasks).score(&learner, source, &self.device);
        if !found.mean.is_finite() {
            let (mean, step) = (found.mean, self.progress.step);
            return Err(TrainError::NonFiniteValidation { mean, step, kept: self.kept() });
        }
        let best = self.progress.validated(found);
        if best {
            self.keep_best()?;
        }
        let metrics = ValidationMetrics { step: self.progress.step, validation: found };
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
        self.check_parameters()?;
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

    /// So that nothing but finite numbers is ever kept.
    fn check_parameters(&self) -> Result<(), TrainError> {
        if all_finite::<B, _>(self.learner()) {
            return Ok(());
        }
        let step = self.progress.step;
        Err(TrainError::NonFiniteParameters { step, kept: self.kept() })
    }

    fn learner_checkpoint(&self) -> Checkpoint {
        let architecture = self.learner().architecture();
        Checkpoint::new(architecture, self.settings.clone(), self.progress.clone())
            .with::<B>("learner", self.learner().clone().into_record())
    }

    fn finish(mut self) -> Result<Trained<L::InnerModule>, TrainError> {
        if let Some(folder) = &self.folder {
            folder.draw_curves()?;
        }
        if let Some(best) = &self.best {
            self.learner = Some(best.load::<B, _, _>(self.learner().clone(), &self.device)?);
        }
        let learner = self.learner().valid();
        let report = TrainingReport {
            steps: self.progress.step,
            episodes_per_s: self.episodes_per_s(),
            last_loss: self.last_loss,
            progress: self.progress,
        };
        Ok(Trained { learner, report })
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

    fn kept(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.path().to_owned())
    }
}
