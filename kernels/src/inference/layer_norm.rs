//! Layer normalisation.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use rayon::prelude::*;

use super::reference;
use crate::environment::chosen;
use crate::host::{HostBackend, HostTable, elements, into_elements, unwrap, wrap, write_like};
use crate::registry;

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 14;

/// `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, with the mean and the biased variance of each row.
///
/// # Shapes
/// - `x`: `[n, d]`
/// - `gamma`, `beta`: `[d]`
/// - returns `[n, d]`
///
/// # Source
/// Ba, Kiros and Hinton, "Layer Normalization", 2016.
pub fn layer_norm<B: Backend>(
    x: Tensor<B, 2>,
    [gamma, beta]: [Tensor<B, 1>; 2],
    epsilon: f64,
) -> Tensor<B, 2> {
    let [n, length] = x.dims();
    assert_eq!([&gamma, &beta].map(|of| of.dims()), [[length]; 2], "a value for each of a row");
    let types = [x.dtype(), gamma.dtype(), beta.dtype()];
    match registry::f32_table::<HostTable<B>>("layer_norm", types) {
        Some(table) if n * length > 0 => {
            wrap((table.layer_norm)([unwrap(x), unwrap(gamma), unwrap(beta)], epsilon))
        }
        _ => reference::layer_norm(x, [gamma, beta], epsilon),
    }
}

/// See [`HostTable`](crate::host::HostTable).
pub(crate) fn on_host<B: HostBackend>(
    [x, gamma, beta]: [FloatTensor<B>; 3],
    epsilon: f64,
) -> FloatTensor<B> {
    let ([n, length], body) = (x.shape().dims(), chosen());
    let (gamma_of, beta_of) = (elements::<B>(&gamma), elements::<B>(&beta));
    let mut y = into_elements::<B>(x);
    let rows = y.par_chunks_exact_mut(length).with_min_len(TASK.div_ceil(length));
    rows.for_each(|row| body.layer_norm([&gamma_of, &beta_of], epsilon as f32, row));
    drop((gamma_of, beta_of));
    write_like::<B, 2>(&gamma, y, [n, length])
}
