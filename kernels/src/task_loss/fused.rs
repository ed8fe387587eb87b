//! The loss as an operation of a backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::TaskLoss;
use crate::twice_differentiable::{self, TwiceDifferentiable, TwiceDifferentiableBackend};

/// What a fused body is told besides its tensors.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct TaskLossCall {
    /// Tasks, examples and outputs.
    pub(super) shape: [usize; 3],
    pub(super) of: TaskLoss,
}

impl TaskLossCall {
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
    fn task_loss(operands: Vec<FloatTensor<Self>>, call: &TaskLossCall) -> FloatTensor<Self>;
}

impl<B: TwiceDifferentiableBackend, C: CheckpointStrategy> FusedTaskLoss for Autodiff<B, C>
where
    TaskLossCall: TwiceDifferentiable<B::Innermost>,
{
    fn task_loss(operands: Vec<FloatTensor<Self>>, call: &TaskLossCall) -> FloatTensor<Self> {
        twice_differentiable::forward_tracked::<B, C, _>(call, &operands, false).result
    }
}

type TaskLossFn<B> = fn(Vec<FloatTensor<B>>, &TaskLossCall) -> FloatTensor<B>;

pub(crate) struct TaskLossTable<B: Backend> {
    pub task_loss: TaskLossFn<B>,
}

impl<B: FusedTaskLoss> TaskLossTable<B> {
    pub(crate) fn new() -> Self {
        Self { task_loss: B::task_loss }
    }
}
