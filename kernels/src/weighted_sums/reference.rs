//! The sums in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::{unwrap, wrap};
use crate::linear::product;

/// See [`weighted_sums`](crate::weighted_sums()).
pub fn weighted_sums<B: Backend>(x: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
    let weight: Tensor<B, 2> = wrap(weight);
    unwrap(product(wrap::<B, 2>(x), weight.transpose()))
}
