//! The losses in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;

use super::TaskLoss;

/// `factor` times [`task_loss`](super::task_loss()), on any backend.
pub fn task_loss<B: Backend>(
    outputs: Tensor<B, 3>,
    targets: Tensor<B, 3>,
    of: TaskLoss,
    factor: f64,
) -> Tensor<B, 1> {
    let [_, examples, length] = outputs.dims();
    match of {
        TaskLoss::CrossEntropy => {
            (log_softmax(outputs, 2) * targets).sum() * (-factor / examples as f64)
        }
        TaskLoss::SquaredError => {
            let difference = outputs - targets;
            (difference.clone() * difference).sum() * (factor / (examples * length) as f64)
        }
    }
}
