//! Tiles and sums over lanes in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::{unwrap, wrap};
use crate::lists::has_elements;

/// `[n]` to `[lanes * n]`.
///
/// Not by `repeat_dim`, which on Candle goes over all that there will be for every copy.
pub fn tiled<B: Backend>(x: FloatTensor<B>, lanes: usize) -> FloatTensor<B> {
    if !has_elements(&x) {
        return x;
    }
    let x: Tensor<B, 1> = wrap(x);
    let [length] = x.dims();
    unwrap(x.reshape([1, length]).expand([lanes, length]).reshape([lanes * length]))
}

/// `[lanes * n]` to `[n]`.
pub fn summed<B: Backend>(x: FloatTensor<B>, lanes: usize) -> FloatTensor<B> {
    if !has_elements(&x) {
        return x;
    }
    let x: Tensor<B, 1> = wrap(x);
    let length = x.dims()[0] / lanes;
    unwrap(x.reshape([lanes, length]).sum_dim(0).reshape([length]))
}
