//! Steps, and those whose loss, score and finite check stay on the device for a while, so that the host does
//! not wait for it: they are read later, several at once.

use std::time::{Duration, Instant};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, Transaction};
use fewshot_kernels::{DeviceGradStats, Route, route};

use super::Run;
use crate::episode::{Measure, TaskKind, TaskSource};
use crate::learners::{Divergence, MetaLearner};
use crate::phase::{self, Phase, PhaseTimes, phase_on};
use crate::precision::{FiniteGrads, GradScaler, LossScale, ScaledGrads};
use crate::train::averages::{self, Averages};
use crate::train::metrics::Line;
use crate::train::step_gradients::{
    LossAndScore, StepGradients, StepTasks, number, step_gradients,
};
use crate::train::{Event, StepMetrics, TrainError};

impl<B, L, O, S, T> Run<B, L, O, S, T>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
    S: LrScheduler,
{
    /// Makes a step, or skips it where gradients overflow at the loss scale, which then falls: the
    /// next one is on the same tasks.
    pub(super) fn step(&mut self) -> Result<(), TrainError> {
        let scale = self.scaler.as_ref().map_or(LossScale::ONE, GradScaler::loss_scale);
        let mut learner = self.learner.take().expect("every step puts the learner back");
        learner.at_step(self.progress.step);
        // A step whose figures are read later is never taken back.
        let averages = (!self.defers_reads()).then(|| averages::running_averages::<B, L>(&learner));
        let (learner, gradients) =
            step_gradients::<B, T, L>(learner, self.tasks(), &self.group, scale)?;
        let StepGradients { figures, gradients } = gradients;
        let (learner, gradients) = match &self.frozen {
            Some(frozen) => (frozen.restore(learner), frozen.without_gradients(gradients)),
            None => (learner, gradients),
        };
        self.learner = Some(learner);
        let figures = match figures {
            LossAndScore::OnDevice(both) if self.defers_reads() => {
                return self.step_deferred(both, gradients);
            }
            figures => figures,
        };
        let (loss, score) = phase::phase(Phase::Backward, || figures.read());
        self.reads += 1;
        if !loss.is_finite() {
            self.restore(averages);
            return Err(self.not_finite(loss));
        }
        let device = self.device().clone();
        let moved = phase_on::<B, _>(Phase::Step, &device, || self.optimizer_step(gradients))?;
        let Some(learning_rate) = moved else {
            self.restore(averages);
            self.clock.phases += phase::take();
            self.emit(&Event::Skipped { step: self.progress.step, loss_scale: scale.value() });
            return Ok(());
        };
        let phases = self.count_step();
        let loss_scale = self.scaler.is_some().then_some(scale.value());
        self.report_metrics(self.progress.step, (loss, score), learning_rate, loss_scale, phases)
    }

    /// Counts a step that was made, which took this.
    fn count_step(&mut self) -> PhaseTimes {
        self.progress.step += 1;
        self.clock.steps += 1;
        let phases = phase::take();
        self.clock.phases += phases;
        phases
    }

    fn report_metrics(
        &mut self,
        step: u64,
        (loss, score): (f32, f64),
        learning_rate: f64,
        loss_scale: Option<f32>,
        phases: PhaseTimes,
    ) -> Result<(), TrainError> {
        self.last_loss = Some(loss);
        let accuracy = match T::Kind::MEASURE {
            Measure::Accuracy => Some(T::Kind::MEASURE.unit() * score),
            Measure::SquaredError => None,
        };
        let phase_ms = phases.rounded();
        let metrics = StepMetrics { step, loss, accuracy, learning_rate, loss_scale, phase_ms };
        if let Some(folder) = &mut self.folder {
            phase::phase(Phase::Save, || folder.log(Line::Step(metrics.clone())))?;
        }
        let left = self.options.steps.saturating_sub(step);
        let elapsed = self.clock.start.elapsed().as_secs_f64();
        self.emit(&Event::Step {
            metrics,
            steps: self.options.steps,
            episodes_per_s: self.episodes_per_s(),
            seconds_left: elapsed / self.clock.steps as f64 * left as f64,
        });
        Ok(())
    }

    fn tasks(&self) -> StepTasks<'_, T> {
        let step = self.progress.step;
        let first = step * self.options.tasks();
        let (source, queue) = (&self.source, self.queue.as_ref());
        StepTasks { source, queue, step, first, parts: self.parts }
    }

    /// The learning rate of the step; `None` where it is skipped.
    fn optimizer_step(&mut self, gradients: ScaledGrads) -> Result<Option<f64>, TrainError> {
        let Some(mut gradients) = self.finite(gradients)? else { return Ok(None) };
        if let Some(limit) = self.options.clip_norm {
            gradients = gradients.clip_norm::<B, L>(self.learner(), limit);
        }
        let learning_rate = self.scheduler.step();
        let learner = self.learner.take().expect("every step puts the learner back");
        self.learner = Some(gradients.step::<B, L, O>(&mut self.optimizer, learning_rate, learner));
        self.average();
        Ok(Some(learning_rate))
    }

    /// Counts the weights after a step into their average.
    fn average(&mut self) {
        if let (Some(average), Some(learner)) = (&mut self.average, &self.learner) {
            average.update(learner, self.progress.step);
        }
    }

    fn finite(&mut self, gradients: ScaledGrads) -> Result<Option<FiniteGrads>, TrainError> {
        let learner = self.learner.as_ref().expect("every step puts the learner back");
        let Some(scaler) = &mut self.scaler else {
            let finite = gradients.unscale::<B, L>(learner).map(Some);
            let step = self.progress.step;
            return finite
                .map_err(|_| TrainError::NonFiniteGradient { step, folder: self.folder_path() });
        };
        let finite = scaler.unscale::<B, L>(gradients, learner)?.ok();
        self.progress.scaler = Some(scaler.state());
        Ok(finite)
    }

    /// Restores the running averages from before a step.
    fn restore(&mut self, averages: Option<Averages<B>>) {
        if let (Some(averages), Some(learner)) = (averages, self.learner.take()) {
            self.learner = Some(averages::restore::<B, L>(learner, &averages));
        }
    }

    fn not_finite(&self, loss: f32) -> TrainError {
        // Those of this step have left the queue.
        let tasks = StepTasks { queue: None, ..self.tasks() };
        let (size, rank) = (self.group.devices.len(), self.group.communicator.rank());
        let mut mine = (rank * size..(rank + 1) * size)
            .flat_map(|replica| self.parts.replica_parts(replica, self.group.count()));
        let divergence = mine.find_map(|part| {
            // Tasks that can no longer be read leave the loss that was found.
            let batch = tasks.batch::<B>(part, self.device()).ok()?;
            let divergence = self.learner().divergence(&batch)?;
            let task = self.parts.tasks(part).start + divergence.task;
            Some(Divergence { task, ..divergence })
        });
        let divergence = match self.group.first_of(divergence) {
            Ok(divergence) => divergence,
            Err(error) => return error.into(),
        };
        TrainError::NonFiniteLoss {
            loss,
            step: self.progress.step,
            episode: tasks.first,
            divergence,
            folder: self.folder_path(),
        }
    }

    /// True if a step can be made before its figures are known. A scale of losses and the clipping of gradients
    /// depend on the figures.
    fn defers_reads(&self) -> bool {
        self.deferred.most > 1 && self.scaler.is_none() && self.options.clip_norm.is_none()
    }

    /// The step along gradients that are taken for finite until they are read.
    fn step_deferred(
        &mut self,
        figures: [Tensor<B::InnerBackend, 1>; 2],
        gradients: ScaledGrads,
    ) -> Result<(), TrainError> {
        let device = self.device().clone();
        let (learning_rate, gradients) = phase_on::<B, _>(Phase::Step, &device, || {
            let (gradients, stats) = gradients.on_device::<B, L>(self.learner());
            let learning_rate = self.scheduler.step();
            let learner = self.learner.take().expect("every step puts the learner back");
            self.learner = Some(self.optimizer.step(learning_rate, learner, gradients));
            self.average();
            (learning_rate, stats)
        });
        let (phases, step) = (self.count_step(), self.progress.step);
        self.deferred.push(DeferredStep { figures, gradients, step, learning_rate, phases });
        match self.deferred.is_due() {
            true => self.read(),
            false => Ok(()),
        }
    }

    /// Reads and reports the figures of all steps made, in one wait for the device.
    ///
    /// # Errors
    /// Fails for the first step whose loss or gradient is not finite. The parameters of that step are gone, so the
    /// error cannot name the task whose inner loop left the finite numbers.
    pub(super) fn read(&mut self) -> Result<(), TrainError> {
        let mut steps = std::mem::take(&mut self.deferred.steps);
        let Some(last) = steps.len().checked_sub(1) else { return Ok(()) };
        let read = phase::phase(Phase::Backward, || {
            let figures = steps.iter().flat_map(|step| step.figures.iter().cloned());
            let gradients = steps.iter().flat_map(|step| step.gradients.tensors());
            figures.chain(gradients).fold(Transaction::default(), Transaction::register).execute()
        });
        self.reads += 1;
        // The time of waiting is counted to the last step.
        let waited = phase::take();
        self.clock.phases += waited;
        steps[last].phases += waited;
        let mut read = read.into_iter();
        let figures: Vec<_> = read.by_ref().take(2 * steps.len()).collect();
        for (done, figures) in steps.into_iter().zip(figures.chunks_exact(2)) {
            let DeferredStep { gradients, step, learning_rate, phases, .. } = done;
            let (loss, score) = (number(&figures[0]) as f32, number(&figures[1]));
            if !loss.is_finite() {
                return Err(TrainError::NonFiniteLoss {
                    loss,
                    step: step - 1,
                    episode: (step - 1) * self.options.tasks(),
                    divergence: None,
                    folder: self.folder_path(),
                });
            }
            let stats = gradients.read(read.by_ref().take(gradients.tensors().count()));
            if !stats.is_finite() {
                return Err(TrainError::NonFiniteGradient {
                    step: step - 1,
                    folder: self.folder_path(),
                });
            }
            self.report_metrics(step, (loss, score), learning_rate, None, phases)?;
        }
        Ok(())
    }
}

/// Steps that an accelerator is not read for, by default.
const STEPS: u64 = 32;

/// And how long it is not.
const TIME: Duration = Duration::from_millis(500);

/// Steps that were made and whose figures are still to be read.
pub(super) struct DeferredSteps<B: AutodiffBackend> {
    steps: Vec<DeferredStep<B>>,
    since: Instant,
    /// They are read after so many, and after this time.
    most: u64,
    longest: Duration,
}

struct DeferredStep<B: AutodiffBackend> {
    figures: [Tensor<B::InnerBackend, 1>; 2],
    gradients: DeviceGradStats<B::InnerBackend>,
    /// Steps done with this one.
    step: u64,
    learning_rate: f64,
    phases: PhaseTimes,
}

impl<B: AutodiffBackend> DeferredSteps<B> {
    /// Read after as many steps as were asked for; else after every step of a processor, which computes
    /// at once.
    pub(super) fn new(read_every: Option<u64>) -> Self {
        let (most, longest) = match (read_every, route::<B>()) {
            (Some(steps), _) => (steps, Duration::MAX),
            (None, Route::Device(_)) => (STEPS, TIME),
            (None, _) => (1, Duration::MAX),
        };
        Self { steps: Vec::new(), since: Instant::now(), most, longest }
    }

    fn push(&mut self, step: DeferredStep<B>) {
        if self.steps.is_empty() {
            self.since = Instant::now();
        }
        self.steps.push(step);
    }

    fn is_due(&self) -> bool {
        self.steps.len() as u64 >= self.most || self.since.elapsed() >= self.longest
    }
}
