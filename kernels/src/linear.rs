//! The linear layer.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::layers::{through_f32, types, wide};
use crate::linear_stack::{LinearLayer, linear_stack};
use crate::matrix_product::{Sizes, matrix_product};
use crate::precision::Precision;
use crate::registry::on_device;

/// `x weight + bias`.
///
/// On a host a matrix product and a sum in plain Burn operations: a fused body would gain nothing,
/// because the product runs at the machine's limit already (on Flex in the `gemm` crate). On an
/// accelerator f32 goes through [`linear_stack`], in full f32 where Burn's own product may take TF32.
/// Burn's own linear operation cannot be differentiated twice; this can.
///
/// # Shapes
/// - `x`: `[n, i]`
/// - `weight`: `[i, o]`, the transpose of PyTorch's, as in Burn
/// - `bias`: `[o]`
/// - output: `[n, o]`
pub fn linear<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, 2> {
    check(x.dims(), weight.dims(), bias.as_ref());
    if let Some(low) = through_f32::<B>(x.dtype(), types([&bias]).chain([weight.dtype()])) {
        let [bias] = wide([bias]);
        return linear(x.cast(FloatDType::F32), weight.cast(FloatDType::F32), bias).cast(low);
    }
    if on_device::<B>() && [&x, &weight].iter().all(|of| of.dtype() == DType::F32) {
        let ([examples, _], [_, outputs]) = (x.dims(), weight.dims());
        if examples == 0 {
            return Tensor::empty([0, outputs], &x.device());
        }
        let y = linear_stack(x.unsqueeze(), &[LinearLayer { weight, bias }], Precision::F32);
        return y.reshape([examples, outputs]);
    }
    with_bias(matrix_product(x, weight), bias)
}

/// The products of the matrices `[.., r, k]` and `[.., k, c]`, `[.., r, c]`, with the same dimensions
/// before the last two; in full f32, where Burn's own may take TF32 on an accelerator.
pub fn product<B: Backend, const D: usize>(
    left: Tensor<B, D>,
    right: Tensor<B, D>,
) -> Tensor<B, D> {
    if !on_device::<B>() || [&left, &right].iter().any(|of| of.dtype() != DType::F32) {
        return matrix_product(left, right);
    }
    let sizes = Sizes::of(left.dims(), right.dims());
    let shape = sizes.result(left.dims());
    if let Some(result) = sizes.without_elements(shape, &left.device()) {
        return result;
    }
    let Sizes { matrices, rows, depth, columns } = sizes;
    let weight = right.reshape([matrices * depth, columns]);
    let layers = [LinearLayer { weight, bias: None }];
    let products = linear_stack(left.reshape([matrices, rows, depth]), &layers, Precision::F32);
    products.reshape(shape)
}

pub(crate) fn with_bias<B: Backend>(y: Tensor<B, 2>, bias: Option<Tensor<B, 1>>) -> Tensor<B, 2> {
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}

/// Panics when the shapes do not fit.
pub(crate) fn check<B: Backend>(
    [_, features]: [usize; 2],
    weight: [usize; 2],
    bias: Option<&Tensor<B, 1>>,
) {
    let [inputs, outputs] = weight;
    assert!(
        inputs == features,
        "a linear layer of {features} features needs a weight [{features}, o], found {weight:?}"
    );
    let values = bias.map_or(outputs, |bias| bias.dims()[0]);
    assert!(
        values == outputs,
        "a linear layer with {outputs} outputs needs as many values of bias, found {values}"
    );
}
