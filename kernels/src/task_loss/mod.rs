//! The losses of tasks: cross-entropy and squared error, summed over tasks and averaged over examples.

mod accuracy;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod reference;

pub use accuracy::{TaskAccuracyCall, task_accuracy};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::registry;
use crate::twice_differentiable::Twice;

/// The comparison of the outputs of tasks with their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskLoss {
    /// `-sum_k target_k log softmax(output)_k` of an example.
    CrossEntropy,
    /// The mean over `k` of `(output_k - target_k)^2` of an example.
    SquaredError,
}

/// The arguments of a fused body besides outputs and targets, which are f32 and have elements.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct TaskLossCall {
    /// Tasks, examples and outputs.
    shape: [usize; 3],
    of: TaskLoss,
    options: TaskLossOptions,
}

/// The factor of a loss, and the choice of its value or its gradient alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskLossOptions {
    /// Factor of the loss.
    pub factor: f64,
    /// True if its gradient alone is used: its value then need not be computed, and means nothing.
    pub gradient_alone: bool,
}

impl Default for TaskLossOptions {
    /// The loss itself.
    fn default() -> Self {
        Self { factor: 1.0, gradient_alone: false }
    }
}

/// The sum over tasks of their examples' mean loss, `[1]`; not a number where tasks have no examples.
///
/// # Shapes
/// - `outputs`, `targets`: `[t, n, d]`
///
/// # Conventions
/// Targets are constants. On an accelerator one operation of a launch, differentiated twice by passes of
/// a launch each; it takes outputs and targets of f32. Elsewhere plain Burn operations.
pub fn task_loss<B: Backend>(
    outputs: Tensor<B, 3>,
    targets: Tensor<B, 3>,
    of: TaskLoss,
) -> Tensor<B, 1> {
    task_loss_with(outputs, targets, of, TaskLossOptions::default())
}

/// [`task_loss`](task_loss()) with options, which cost an accelerator nothing.
pub fn task_loss_with<B: Backend>(
    outputs: Tensor<B, 3>,
    targets: Tensor<B, 3>,
    of: TaskLoss,
    options: TaskLossOptions,
) -> Tensor<B, 1> {
    let shape = outputs.dims();
    assert_eq!(shape, targets.dims(), "outputs and targets have one shape");
    if shape.contains(&0) {
        // No tasks have no loss; a mean over no examples is not a number.
        let loss = if shape[0] == 0 { 0.0 } else { f32::NAN };
        return Tensor::full([1], loss, (&outputs.device(), outputs.dtype()));
    }
    let types = [outputs.dtype(), targets.dtype()];
    match registry::f32_body::<B, Twice<TaskLossCall>>("task_loss", types) {
        Some(body) => {
            let operands = vec![unwrap(outputs), unwrap(targets.detach())];
            wrap(body(operands, &Twice(TaskLossCall { shape, of, options })).0)
        }
        None => reference::task_loss(outputs, targets, of, options.factor),
    }
}
