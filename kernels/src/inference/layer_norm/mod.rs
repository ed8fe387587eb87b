//! Layer normalisation.

pub(crate) mod host;
mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{HostTable, unwrap, wrap};
use crate::registry;

/// `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, with the mean and the biased variance of each row.
///
/// A host takes it in one pass, below autodiff: on a backend that differentiates, plain operations run, and
/// gradients flow.
///
/// # Shapes
/// - `x`: `[n, d]`
/// - `gamma`, `beta`: `[d]`
/// - returns `[n, d]`
///
/// # Panics
/// When the shapes do not fit.
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
