//! Accuracy by targets, in one launch on an accelerator.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::{unwrap, wrap};
use crate::registry::{self, Operation};

/// The settings of a fused body. Outputs and targets are f32 and have elements.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct TaskAccuracyCall {
    /// Tasks, examples and outputs.
    pub(super) shape: [usize; 3],
    pub(super) factor: f64,
}

impl Operation for TaskAccuracyCall {
    type Operands<B: Backend> = [FloatTensor<B>; 2];
    type Results<B: Backend> = FloatTensor<B>;
}

/// `factor` times the sum over tasks of the share of examples whose largest output is where the largest target is, `[1]`; not a
/// number where tasks have no examples.
///
/// # Shapes
/// - `outputs`, `targets`: `[t, n, d]`
///
/// # Conventions
/// It has no gradient. Of equal values the first is the largest, on most backends. On an accelerator one launch for outputs
/// and targets of f32; elsewhere plain Burn operations.
///
/// # Panics
/// When the shapes differ.
pub fn task_accuracy<B: Backend>(
    outputs: Tensor<B, 3>,
    targets: Tensor<B, 3>,
    factor: f64,
) -> Tensor<B, 1> {
    let shape = outputs.dims();
    assert_eq!(shape, targets.dims(), "outputs and targets have one shape");
    if shape.contains(&0) {
        let accuracy = if shape[0] == 0 { 0.0 } else { f32::NAN };
        return Tensor::full([1], accuracy, (&outputs.device(), outputs.dtype()));
    }
    let types = [outputs.dtype(), targets.dtype()];
    match registry::f32_body::<B, TaskAccuracyCall>("task_accuracy", types) {
        Some(body) => {
            let call = TaskAccuracyCall { shape, factor };
            wrap(body([unwrap(outputs), unwrap(targets)], &call))
        }
        None => reference(outputs, targets, factor),
    }
}

/// [`task_accuracy`] in plain Burn operations.
fn reference<B: Backend>(
    outputs: Tensor<B, 3>,
    targets: Tensor<B, 3>,
    factor: f64,
) -> Tensor<B, 1> {
    let [_, examples, _] = outputs.dims();
    let right = outputs.argmax(2).equal(targets.argmax(2)).float();
    right.sum() * (factor / examples as f64)
}
