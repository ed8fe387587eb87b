//! The matrices in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::{unwrap, wrap};
use crate::linear::product;

/// See [`gram`](crate::gram()).
pub fn gram<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let x: Tensor<B, 3> = wrap(x);
    unwrap(product(x.clone(), x.swap_dims(1, 2)))
}
