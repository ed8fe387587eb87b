//! The matrices in plain Burn operations.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData};

use crate::host::{unwrap, wrap};
use crate::linear::product;

/// See [`gram`](crate::gram()).
pub fn gram<B: Backend>(x: FloatTensor<B>, rows: &[usize], size: usize) -> FloatTensor<B> {
    let x = picked::<B>(wrap(x), rows);
    let features = x.dims()[1];
    let x = x.reshape([rows.len() / size, size, features]);
    unwrap(product(x.clone(), x.swap_dims(1, 2)))
}

/// Rows of `x` one after the other.
pub(super) fn picked<B: Backend>(x: Tensor<B, 2>, rows: &[usize]) -> Tensor<B, 2> {
    let [count, features] = x.dims();
    if rows.iter().copied().eq(0..count) {
        return x;
    }
    // Candle selects from rows that lie one after the other alone: the first of both puts them there.
    let x = x.reshape([count * features]).reshape([count, features]);
    let places = rows.iter().map(|&row| row as i64).collect();
    let places = TensorData::new::<i64, _>(places, [rows.len()]);
    let device = x.device();
    x.select(0, Tensor::from_data(places, &device))
}
