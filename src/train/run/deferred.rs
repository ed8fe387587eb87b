//! Steps whose loss, score and finite check are still on the device, so that the host does not wait for
//! it: they are read later, several at once.

use std::time::{Duration, Instant};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, Transaction};
use fewshot_kernels::{DeviceGradStats, Route, route};

use super::Run;
use crate::episode::TaskSource;
use crate::learners::MetaLearner;
use crate::phase::{self, Phase, PhaseTimes, phase_on};
use crate::precision::ScaledGrads;
use crate::train::TrainError;
use crate::train::step_gradients::number;

/// Steps that an accelerator is not read for, by default.
const STEPS: u64 = 32;

/// And how long it is not.
const TIME: Duration = Duration::from_millis(500);

/// After how many steps figures are read, and after how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    steps: u64,
    time: Duration,
}

impl Interval {
    /// As it was asked for; else every step of a processor, which computes at once.
    pub(super) fn new<B: AutodiffBackend>(asked: Option<u64>) -> Self {
        match (asked, route::<B>()) {
            (Some(steps), _) => Self { steps, time: Duration::MAX },
            (None, Route::Device(_)) => Self { steps: STEPS, time: TIME },
            (None, _) => Self { steps: 1, time: Duration::MAX },
        }
    }
}

/// What is known of steps that were made, and what is to be read of them.
pub(super) struct DeferredSteps<B: AutodiffBackend> {
    steps: Vec<DeferredStep<B>>,
    since: Instant,
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
    pub(super) fn new() -> Self {
        Self { steps: Vec::new(), since: Instant::now() }
    }

    fn push(&mut self, step: DeferredStep<B>) {
        if self.steps.is_empty() {
            self.since = Instant::now();
        }
        self.steps.push(step);
    }

    fn is_due(&self, interval: Interval) -> bool {
        self.steps.len() as u64 >= interval.steps || self.since.elapsed() >= interval.time
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
    /// Whether a step can be made before its figures are known: a scale of losses and the clipping of
    /// gradients depend on what they are.
    pub(super) fn defers_reads(&self) -> bool {
        self.interval.steps > 1 && self.scaler.is_none() && self.options.clip_norm.is_none()
    }

    /// The step along gradients that are taken for finite until they are read.
    pub(super) fn step_deferred(
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
            (learning_rate, stats)
        });
        let (phases, step) = (self.count_step(), self.progress.step);
        self.deferred.push(DeferredStep { figures, gradients, step, learning_rate, phases });
        match self.deferred.is_due(self.interval) {
            true => self.read(),
            false => Ok(()),
        }
    }

    /// Reads and reports the figures of all steps made, in one wait for the device.
    ///
    /// # Errors
    /// That of the first step whose loss or gradient is not finite. Its parameters are gone, so that it
    /// cannot be told where an inner loop left the finite numbers.
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
                    kept: self.kept(),
                });
            }
            let stats = gradients.read(read.by_ref().take(gradients.tensors().count()));
            if !stats.is_finite() {
                return Err(TrainError::NonFiniteGradient { step: step - 1, kept: self.kept() });
            }
            self.report_metrics(step, (loss, score), learning_rate, None, phases)?;
        }
        Ok(())
    }
}
