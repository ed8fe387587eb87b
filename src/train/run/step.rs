use burn::lr_scheduler::LrScheduler;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;

use super::Run;
use crate::episode::{Measure, TaskKind, TaskSource};
use crate::learners::{Divergence, MetaLearner};
use crate::phase::{self, Phase, PhaseTimes, phase_on};
use crate::precision::{FiniteGrads, GradScaler, LossScale, ScaledGrads};
use crate::train::metrics::Line;
use crate::train::step_gradients::{LossAndScore, StepGradients, StepTasks, step_gradients};
use crate::train::{Event, StepMetrics, TrainError, averages};

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
        let averages = (!self.defers_reads()).then(|| averages::of::<B, L>(&learner));
        let (learner, found) =
            step_gradients::<B, T, L>(learner, self.tasks(), &self.group, scale)?;
        self.learner = Some(learner);
        let StepGradients { figures, gradients } = found;
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
    pub(super) fn count_step(&mut self) -> PhaseTimes {
        self.progress.step += 1;
        self.clock.steps += 1;
        let phases = phase::take();
        self.clock.phases += phases;
        phases
    }

    /// Tells of a step that was made.
    pub(super) fn report_metrics(
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
        let first = self.progress.step * self.options.tasks();
        StepTasks { source: &self.source, first, parts: self.parts }
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
        Ok(Some(learning_rate))
    }

    fn finite(&mut self, gradients: ScaledGrads) -> Result<Option<FiniteGrads>, TrainError> {
        let learner = self.learner.as_ref().expect("every step puts the learner back");
        match &mut self.scaler {
            Some(scaler) => {
                let found = scaler.unscale::<B, L>(gradients, learner)?.ok();
                self.progress.scaler = Some(scaler.state());
                Ok(found)
            }
            None => match gradients.unscale::<B, L>(learner) {
                Ok(gradients) => Ok(Some(gradients)),
                Err(_) => {
                    let step = self.progress.step;
                    Err(TrainError::NonFiniteGradient { step, kept: self.kept() })
                }
            },
        }
    }

    /// What a step moves besides the parameters goes back to where it was.
    fn restore(&mut self, averages: Option<GradientsParams>) {
        if let (Some(averages), Some(learner)) = (averages, self.learner.take()) {
            self.learner = Some(averages::restore::<B, L>(learner, &averages));
        }
    }

    /// Where a loss was lost.
    fn not_finite(&self, loss: f32) -> TrainError {
        let tasks = self.tasks();
        let (size, rank) = (self.group.devices.len(), self.group.communicator.rank());
        let mine = (rank * size..(rank + 1) * size)
            .flat_map(|replica| self.parts.of_replica(replica, self.group.count()));
        let mut mine = mine.into_iter();
        let divergence = mine.find_map(|part| {
            let found = self.learner().divergence(&tasks.batch::<B>(part, self.device()))?;
            let task = self.parts.tasks(part).start + found.task;
            Some(Divergence { task, ..found })
        });
        let divergence = match self.group.first_of(divergence.map(|it| [it.task, it.step])) {
            Ok(divergence) => divergence.map(|[task, step]| Divergence { task, step }),
            Err(error) => return error.into(),
        };
        TrainError::NonFiniteLoss {
            loss,
            step: self.progress.step,
            episode: tasks.first,
            divergence,
            kept: self.kept(),
        }
    }
}
