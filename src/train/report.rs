use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{Evaluation, Evaluator, Progress};
use crate::episode::{DataPlacement, EpisodeSampler};
use crate::learners::Learner;
use crate::phase::PhaseTimes;
use crate::precision::Precision;

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
    /// What the learner's products were computed in.
    pub precision: Precision,
    /// What losses are scaled by now, in `f16`.
    pub loss_scale: Option<f32>,
    /// Steps that were not made because gradients overflowed, those before a resume included.
    pub skipped_steps: u64,
    /// Devices, of all processes, that shared the tasks of a step.
    pub replicas: usize,
    /// Where the data of tasks lay: on the device or on the host.
    pub data_on: DataPlacement,
    /// How often this process read losses and scores of steps from the device, each time waiting for it.
    pub reads: u64,
    /// What a step of this process took, by phase, with its part of validations and checkpoints.
    pub phase_ms: PhaseTimes,
    /// What a step took besides, in milliseconds: the trainer itself.
    pub other_ms: f64,
}

impl<L> Trained<L> {
    /// Tests the learner on the first `episodes` episodes, with its own batch-norm
    /// [`statistics`](Learner::statistics).
    pub fn evaluate<B>(&self, sampler: &EpisodeSampler, episodes: usize) -> Evaluation
    where
        B: Backend,
        L: Learner<B>,
    {
        let device = self.learner.devices().into_iter().next().unwrap_or_default();
        Evaluator::new(episodes).run(&self.learner, sampler, &device)
    }
}
