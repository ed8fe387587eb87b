use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{Evaluation, Evaluator, Progress};
use crate::episode::{DataPlacement, EpisodeSampler};
use crate::learners::Learner;
use crate::phase::PhaseTimes;
use crate::precision::Precision;

/// A trained learner, on the backend without autodiff.
#[derive(Clone, Debug)]
pub struct Trained<L> {
    /// The learner at its best validation, or at the last step if there was no validation.
    pub learner: L,
    /// Report of the training.
    pub report: TrainingReport,
}

/// Report of a training.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrainingReport {
    /// Steps done, including those before a resume.
    pub steps: u64,
    /// Training tasks a second in this process, validations not counted; 0 without a step.
    pub episodes_per_s: f64,
    /// Progress of the run, with its best validation.
    pub progress: Progress,
    /// Loss of the last step made in this process.
    pub last_loss: Option<f32>,
    /// Precision of the learner's products.
    pub precision: Precision,
    /// The last loss scale, in `f16`.
    pub loss_scale: Option<f32>,
    /// Steps skipped because gradients overflowed, including those before a resume.
    pub skipped_steps: u64,
    /// Number of replicas: devices of all processes.
    pub replicas: usize,
    /// Place of the data of tasks: device or host.
    pub data_on: DataPlacement,
    /// Number of times that this process waited for the device to read losses and scores of steps.
    pub reads: u64,
    /// Time of a step of this process, by phase, with its share of validations and checkpoints.
    pub phase_ms: PhaseTimes,
    /// Time of a step outside of all phases, in milliseconds: the trainer itself.
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
