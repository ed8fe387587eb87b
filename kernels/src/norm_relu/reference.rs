//! Batch normalisation, ReLU and pool in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use super::rectified::Rectified;
use crate::batch_norm::reference::batch_norm;
use crate::conv_stack::Moments;
use crate::max_pool::reference::max_pool;

/// The same as [`norm_relu`](super::norm_relu()); with the moments of the batch, detached, where no
/// `running` ones are given.
pub fn norm_relu<B: Backend>(
    x: Tensor<B, 4>,
    gamma: Option<Tensor<B, 1>>,
    beta: Option<Tensor<B, 1>>,
    running: Option<Moments<B>>,
    epsilon: f64,
    after: Rectified,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let (y, moments) = batch_norm(x, gamma, beta, running, epsilon);
    let y = relu(y);
    (if after.pool { max_pool(y) } else { y }, moments)
}
