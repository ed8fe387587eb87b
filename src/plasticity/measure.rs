use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};
use fewshot_kernels::product;

/// The share of the power of inputs `x` `[b, inputs]` that a linear layer's outputs explain through
/// the same weight `[neurons, inputs]`, `W^T W x`, at the gain that suits them best:
/// `(sum <x, r>)^2 / (sum |r|^2 sum |x|^2)` with `r = W^T W x`.
///
/// For orthonormal rows it is the share of the power within their span. 1 explains everything, of
/// inputs of zeros too; 0 is what a weight of zeros explains of others. The scale of weight and
/// inputs does not matter. NaN where one of them is not finite.
pub fn explained_variance<B: Backend>(weight: Tensor<B, 2>, x: Tensor<B, 2>) -> f64 {
    let largest = |values: &Tensor<B, 2>| values.clone().abs().max().into_scalar().elem::<f64>();
    let (most, height) = (largest(&weight), largest(&x));
    if !(most.is_finite() && height.is_finite()) {
        return f64::NAN;
    }
    if most == 0.0 || height == 0.0 {
        return if height == 0.0 { 1.0 } else { 0.0 };
    }
    let (weight, x) = (weight / most, x / height);
    let explained = product(product(x.clone(), weight.clone().transpose()), weight);
    let sum = |values: Tensor<B, 2>| values.sum().into_scalar().elem::<f64>();
    let along = sum(x.clone() * explained.clone());
    let powers = sum(explained.clone() * explained) * sum(x.clone() * x);
    if powers == 0.0 { 0.0 } else { along * along / powers }
}

/// Root mean square of the lengths of a weight's rows, `[neurons, inputs]`.
pub fn row_norm<B: Backend>(weight: Tensor<B, 2>) -> f64 {
    let neurons = weight.dims()[0] as f64;
    let power: f64 = (weight.clone() * weight).sum().into_scalar().elem();
    (power / neurons).sqrt()
}
