//! Inverses of small symmetric positive definite matrices.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use fewshot_kernels::product;
use rayon::prelude::*;

/// Inverses of symmetric positive definite `matrices`, `[t, m, m]`, on every backend.
///
/// They are computed on the host in f64, after one reading of all matrices. With `A0` what was read
/// and `E = (A - A0) A0^-1`, which is zero but has the derivative of `A`, the result is
/// `A0^-1 (I - E + E^2)`: the series of `A^-1` around `A0`, whose value and first two derivatives
/// are those of the inverse.
///
/// # Panics
/// When the matrices are not square.
pub(super) fn inverses<B: Backend>(matrices: Tensor<B, 3>) -> Tensor<B, 3> {
    let [tasks, size, columns] = matrices.dims();
    assert_eq!(size, columns, "only square matrices have an inverse, found [{size}, {columns}]");
    let (values, read) = read(&matrices);
    let mut inverses = values;
    inverses.par_chunks_mut((size * size).max(1)).for_each(|matrix| invert(matrix, size));
    let inverses = on_device(inverses, [tasks, size, size], &matrices);
    if !B::ad_enabled(&matrices.device()) {
        return inverses;
    }
    let change = product(matrices - read, inverses.clone());
    let second = product(change.clone(), change.clone());
    inverses.clone() - product(inverses, change - second)
}

/// The values of `tensor`, and a constant of the same values.
///
/// A tensor from `detach` would be constant for one level of autodiff only.
pub(super) fn read<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> (Vec<f64>, Tensor<B, D>) {
    let data = tensor.to_data();
    let values = data.iter::<f64>().collect();
    (values, Tensor::from_data(data, (&tensor.device(), tensor.dtype())))
}

/// A constant of `values`, on the device of `like` and of its type.
pub(super) fn on_device<B: Backend, const D: usize, const E: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    like: &Tensor<B, E>,
) -> Tensor<B, D> {
    let data = TensorData::new(values, shape).convert_dtype(DType::F32);
    Tensor::from_data(data, (&like.device(), like.dtype()))
}

/// A symmetric positive definite matrix of `size` rows becomes its inverse.
///
/// Gauss-Jordan elimination, which needs no pivoting on such matrices. A pivot that rounding has made
/// too small is taken to be the least that f64 tells from zero beside its diagonal element.
pub(super) fn invert(matrix: &mut [f64], size: usize) {
    let least: Vec<f64> = (0..size).map(|k| least_pivot(matrix[k * size + k])).collect();
    let mut row = vec![0.0; size];
    for k in 0..size {
        let pivot = matrix[k * size + k].max(least[k]).recip();
        matrix[k * size + k] = 1.0;
        for (kept, value) in row.iter_mut().zip(&mut matrix[k * size..][..size]) {
            *value *= pivot;
            *kept = *value;
        }
        for i in (0..size).filter(|&i| i != k) {
            let target = &mut matrix[i * size..][..size];
            let factor = std::mem::take(&mut target[k]);
            for (value, &kept) in target.iter_mut().zip(&row) {
                *value -= factor * kept;
            }
        }
    }
}

fn least_pivot(diagonal: f64) -> f64 {
    (diagonal * f64::EPSILON).max(f64::MIN_POSITIVE)
}
