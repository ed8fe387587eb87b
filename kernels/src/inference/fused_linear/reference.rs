//! The layer in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::activation::{gelu, sigmoid};
use burn::tensor::backend::Backend;

use super::{Activation, LinearEpilogue};
use crate::linear;

/// The same as [`fused_linear`](super::fused_linear()), on any backend.
pub fn fused_linear<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    epilogue: LinearEpilogue<Tensor<B, 1>, Tensor<B, 2>>,
) -> Tensor<B, 2> {
    let y = linear(x, weight, Some(bias));
    match epilogue {
        LinearEpilogue::Activation(Activation::Identity) => y,
        LinearEpilogue::Activation(Activation::Gelu) => gelu(y),
        LinearEpilogue::Activation(Activation::QuickGelu) => y.clone() * sigmoid(y * 1.702),
        LinearEpilogue::Residual { scale: Some(scale), add } => y * scale.unsqueeze() + add,
        LinearEpilogue::Residual { scale: None, add } => y + add,
    }
}
