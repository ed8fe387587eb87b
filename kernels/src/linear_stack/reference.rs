//! The layers in plain Burn operations, each of which can be differentiated any number of times.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use super::LinearLayer;
use crate::matrix_product::matrix_product;
use crate::precision::Precision;

/// The same as [`linear_stack`](super::linear_stack()), on any backend.
pub fn linear_stack<B: Backend>(
    x: Tensor<B, 3>,
    layers: &[LinearLayer<B>],
    precision: Precision,
) -> Tensor<B, 3> {
    let last = layers.len() - 1;
    layers.iter().enumerate().fold(x, |x, (index, layer)| {
        let y = through(layer, x, precision);
        if index < last { relu(y) } else { y }
    })
}

fn through<B: Backend>(
    LinearLayer { weight, bias }: &LinearLayer<B>,
    x: Tensor<B, 3>,
    precision: Precision,
) -> Tensor<B, 3> {
    let [lanes, examples, inputs] = x.dims();
    let [_, outputs] = weight.dims();
    let weight = weight.clone().reshape([lanes, inputs, outputs]);
    let y = precision.product(x, weight, matrix_product);
    match bias {
        // A product, since adding a bias for each task, and summing its gradient, is far slower.
        Some(bias) => {
            let ones = Tensor::ones([lanes, examples, 1], (&y.device(), y.dtype()));
            y + matrix_product(ones, bias.clone().reshape([lanes, 1, outputs]))
        }
        None => y,
    }
}
