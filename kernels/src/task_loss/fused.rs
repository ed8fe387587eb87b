//! The loss as an operation of a backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::TaskLoss;
use crate::smooth::{self, Passes, SmoothOps};

/// What a fused body is told besides its tensors.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct LossOf {
    /// Tasks, examples and outputs.
    pub(super) shape: [usize; 3],
    pub(super) of: TaskLoss,
}

impl LossOf {
    /// By what the sum over all elements is multiplied.
    #[cfg(feature = "cube")]
    pub(super) fn share(&self) -> f32 {
        let [_, examples, length] = self.shape;
        match self.of {
            TaskLoss::CrossEntropy => 1.0 / examples as f32,
            TaskLoss::SquaredError => 1.0 / (examples * length) as f32,
        }
    }
}

/// A backend with a fused body for [`task_loss`](super::task_loss).
pub trait FusedTaskLoss: Backend {
    /// The loss `[1]` of outputs and targets, of f32 and with elements.
    fn task_loss(operands: Vec<FloatTensor<Self>>, call: &LossOf) -> FloatTensor<Self>;
}

impl<B: SmoothOps, C: CheckpointStrategy> FusedTaskLoss for Autodiff<B, C>
where
    LossOf: Passes<B::Leaf>,
{
    fn task_loss(operands: Vec<FloatTensor<Self>>, call: &LossOf) -> FloatTensor<Self> {
        smooth::on_graph::<B, C, _>(call, &operands, false).result
    }
}

type TaskLossFn<B> = fn(Vec<FloatTensor<B>>, &LossOf) -> FloatTensor<B>;

pub(crate) struct TaskLossTable<B: Backend> {
    pub task_loss: TaskLossFn<B>,
}

impl<B: FusedTaskLoss> TaskLossTable<B> {
    pub(crate) fn new() -> Self {
        Self { task_loss: B::task_loss }
    }
}
