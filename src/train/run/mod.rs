//! Training under way.

mod begin;
mod checkpoints;
mod step;
#[cfg(all(test, feature = "flex"))]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use serde_json::Value;

use super::frozen::Frozen;
use super::micro_batches::MicroBatches;
use super::options::Options;
use super::replica_group::ReplicaGroup;
use super::report::{Trained, TrainingReport};
use super::task_queue::TaskQueue;
use super::trainer::MetaTrainer;
use super::weight_average::WeightAverage;
use super::{Checkpoint, Event, Progress, RunFolder, TrainError};
use crate::episode::{DataPlacement, TaskSource};
use crate::hardware::panics::device_has_failed;
use crate::hardware::{HardwareError, devices_guarded};
use crate::learners::MetaLearner;
use crate::phase::{self, Phase, PhaseTimes};
use crate::precision::GradScaler;
use step::DeferredSteps;

pub(super) struct Run<B: AutodiffBackend, L, O, S, T> {
    /// `None` only during a step, which needs the only copy.
    learner: Option<L>,
    /// Frozen parameters, if there are any.
    frozen: Option<Frozen<B>>,
    /// Average of weights, which stands for the learner outside of steps.
    average: Option<WeightAverage<B>>,
    optimizer: O,
    scheduler: S,
    source: T,
    /// Tasks that are prepared ahead while the run trains.
    queue: Option<TaskQueue>,
    validation: Option<(T, usize)>,
    data_on: DataPlacement,
    options: Options,
    settings: Value,
    group: ReplicaGroup<B::Device>,
    parts: MicroBatches,
    /// Scaler of the losses of a learner that computes in `f16`.
    scaler: Option<GradScaler>,
    /// Run folder, in the first process alone.
    folder: Option<RunFolder>,
    progress: Progress,
    /// Checkpoint of the best learner.
    best: Option<Checkpoint>,
    clock: Clock,
    last_loss: Option<f32>,
    deferred: DeferredSteps<B>,
    /// Number of times that figures were read.
    reads: u64,
}

struct Clock {
    start: Instant,
    /// Seconds.
    validating: f64,
    steps: u64,
    phases: PhaseTimes,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), validating: 0.0, steps: 0, phases: PhaseTimes::default() }
    }

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
    /// The run from beginning to end. A device that fails, which Burn tells by a panic, is an error that
    /// says in which step and phase; every other panic stays one.
    pub(super) fn guarded(
        trainer: MetaTrainer<L, O, S, T>,
        devices: Vec<B::Device>,
    ) -> Result<Trained<L::InnerModule>, TrainError> {
        let devices = match devices.is_empty() {
            true => vec![trainer.learner.devices().into_iter().next().unwrap_or_default()],
            false => devices,
        };
        let (mut run, mut reached) = (None, (0, None));
        phase::failed();
        let ended = devices_guarded::<B, Result<_, TrainError>>(&devices, || {
            let trained = run.insert(Self::begin(trainer, devices.clone())?);
            trained.train()?;
            reached = (trained.progress.step, trained.folder_path());
            run.take().expect("it has just trained").finish()
        });
        let failure = match ended {
            Ok(ended) => return ended,
            Err(failure) => Box::new(failure),
        };
        let under_way = run.as_ref().map(|run| (run.progress.step, run.folder_path()));
        let (step, folder) = under_way.unwrap_or(reached);
        // Tensors of a device that failed may fail to be given back.
        let _ = devices_guarded::<B, _>(&devices, || drop(run));
        Err(TrainError::Device { step, phase: phase::failed(), failure, folder })
    }

    fn device(&self) -> &B::Device {
        &self.group.devices[0]
    }

    fn learner(&self) -> &L {
        self.learner.as_ref().expect("every step puts the learner back")
    }

    /// The learner that is tested and saved: with the average of weights, if there is one.
    fn tested(&self) -> L {
        let learner = self.learner().clone();
        match &self.average {
            Some(average) => average.apply(learner),
            None => learner,
        }
    }

    fn train(&mut self) -> Result<(), TrainError> {
        let steps = self.options.steps;
        self.emit(&Event::Started { step: self.progress.step, steps });
        let _waiting = Waiting::set(self.options.profile);
        self.queue = self.start_queue()?;
        phase::take();
        self.clock = Clock::start();
        while self.progress.step < steps && !self.exhausted() {
            let before = self.progress.step;
            self.step().map_err(|error| self.stopped(error))?;
            self.check_device()?;
            let step = self.progress.step;
            let moved = step > before;
            let validating =
                moved && (step.is_multiple_of(self.options.validate_every) || step == steps);
            if validating {
                self.read()?;
                self.validate()?;
            }
            let interrupted = self.group.any(self.options.interrupt.load(Ordering::Relaxed))?;
            let due = moved && step.is_multiple_of(self.options.checkpoint_every);
            if validating || due || interrupted || self.exhausted() {
                self.read()?;
                phase::phase(Phase::Save, || self.save())?;
            }
            if interrupted && step < steps {
                return Err(TrainError::Interrupted { step });
            }
        }
        if self.exhausted() && self.progress.step < steps {
            self.emit(&Event::StoppedEarly { step: self.progress.step });
        }
        Ok(())
    }

    /// The queue of this process's tasks from the next step to the last; `None` where the source has no work for it.
    fn start_queue(&self) -> Result<Option<TaskQueue>, TrainError> {
        let Some(preparer) = self.source.preparer() else { return Ok(None) };
        let size = self.group.devices.len();
        let first = self.group.communicator.rank() * size;
        let (parts, tasks) = (self.parts, self.options.tasks());
        let rounds = parts.rounds(first..first + size, self.group.count()).concat();
        let step = self.progress.step;
        let order = (step..self.options.steps).flat_map(move |step| {
            let parts_of_step: Vec<_> =
                rounds.iter().map(|&(_, part)| parts.indices(step * tasks, part)).collect();
            parts_of_step
        });
        let queue = TaskQueue::start(preparer, order).map_err(|error| TrainError::Preparation {
            step,
            reason: error.to_string(),
            folder: self.folder_path(),
        })?;
        Ok(Some(queue))
    }

    /// Checks that no thread of a device has panicked so far; [`guarded`](Self::guarded) reports the text of the
    /// panic.
    fn check_device(&self) -> Result<(), TrainError> {
        if !device_has_failed() {
            return Ok(());
        }
        let (device, reason) = (format!("{:?}", self.device()), "it failed".to_owned());
        let failure = Box::new(HardwareError::Failed { device, reason });
        let (step, folder) = (self.progress.step, self.folder_path());
        Err(TrainError::Device { step, phase: None, failure, folder })
    }

    /// The error of a step, with the place of the last good state where data could not be read.
    fn stopped(&self, error: TrainError) -> TrainError {
        let (step, folder) = (self.progress.step, self.folder_path());
        match error {
            TrainError::Data(source) => TrainError::UnreadableTasks { step, source, folder },
            TrainError::Preparation { step, reason, .. } => {
                TrainError::Preparation { step, reason, folder }
            }
            other => other,
        }
    }

    /// One process speaks for all.
    fn emit(&mut self, event: &Event) {
        if self.group.is_root() {
            (self.options.observer)(event);
        }
    }

    fn finish(mut self) -> Result<Trained<L::InnerModule>, TrainError> {
        self.read()?;
        self.clock.phases += phase::take();
        let training = self.clock.training() * 1e3;
        if let Some(folder) = &self.folder {
            folder.draw_curves()?;
        }
        let learner = match &self.best {
            Some(best) => best.load::<B, _, _>(self.learner().clone(), self.device())?,
            None => self.tested(),
        };
        let learner = learner.valid();
        let steps = self.clock.steps.max(1) as f64;
        let phase_ms = self.clock.phases / steps;
        let known = self.clock.phases.total() - self.clock.phases.validate;
        let report = TrainingReport {
            steps: self.progress.step,
            episodes_per_s: self.episodes_per_s(),
            last_loss: self.last_loss,
            precision: self.learner().precision(),
            loss_scale: self.scaler.as_ref().map(|scaler| scaler.loss_scale().value()),
            skipped_steps: self.scaler.as_ref().map_or(0, GradScaler::skipped),
            replicas: self.group.count(),
            data_on: self.data_on,
            reads: self.reads,
            phase_ms,
            other_ms: (training - known).max(0.0) / steps,
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
            steps => (steps * self.options.tasks()) as f64 / self.clock.training(),
        }
    }

    fn folder_path(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.path.clone())
    }
}

/// Phases wait for devices, or do not, until this is dropped.
struct Waiting;

impl Waiting {
    fn set(waits: bool) -> Self {
        phase::wait_for_devices(waits);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        phase::wait_for_devices(false);
    }
}
