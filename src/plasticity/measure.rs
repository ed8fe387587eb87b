use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};

/// The share of the power of inputs `x` `[b, inputs]` that a linear layer's outputs explain through
/// the same weight `[neurons, inputs]`, `W^T W x`, at the gain that suits them best:
/// `(sum <x, r>)^2 / (sum |r|^2 sum |x|^2)` with `r = W^T W x`.
///
/// For orthonormal rows it is the share of the power within their span. 1 explains everything, and
/// inputs of zeros are explained.
pub fn explained_variance<B: Backend>(weight: Tensor<B, 2>, x: Tensor<B, 2>) -> f64 {
    let explained = x.clone().matmul(weight.clone().transpose()).matmul(weight);
    let sum = |values: Tensor<B, 2>| values.sum().into_scalar().elem::<f64>();
    let along = sum(x.clone() * explained.clone());
    let powers = sum(explained.clone() * explained) * sum(x.clone() * x);
    if powers == 0.0 { 1.0 } else { along * along / powers }
}

/// Root mean square of the lengths of a weight's rows, `[neurons, inputs]`.
pub fn row_norm<B: Backend>(weight: Tensor<B, 2>) -> f64 {
    let neurons = weight.dims()[0] as f64;
    let power: f64 = (weight.clone() * weight).sum().into_scalar().elem();
    (power / neurons).sqrt()
}
