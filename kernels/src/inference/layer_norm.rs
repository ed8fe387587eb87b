//! Layer normalisation.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use rayon::prelude::*;

use super::reference;
use crate::environment::chosen;
use crate::host::{HostBackend, elements, into_elements, unwrap, wrap, write_like};
use crate::registry::{self, Operation, Runs};

/// Floats that are worth a task of their own.
pub(super) const TASK: usize = 1 << 14;

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
    match registry::f32_body::<B, LayerNorm>("layer_norm", types) {
        Some(body) if n * length > 0 => {
            wrap(body([unwrap(x), unwrap(gamma), unwrap(beta)], &LayerNorm { epsilon }))
        }
        _ => reference::layer_norm(x, [gamma, beta], epsilon),
    }
}

/// The norm of rows, with gain and shift.
pub(crate) struct LayerNorm {
    pub(super) epsilon: f64,
}

impl Operation for LayerNorm {
    type Operands<B: Backend> = [FloatTensor<B>; 3];
    type Results<B: Backend> = FloatTensor<B>;
}

impl<H: HostBackend> Runs<LayerNorm> for H {
    fn run(
        [x, gamma, beta]: [FloatTensor<H>; 3],
        &LayerNorm { epsilon }: &LayerNorm,
    ) -> FloatTensor<H> {
        let ([n, length], body) = (x.shape().dims(), chosen());
        let (gamma_of, beta_of) = (elements::<H>(&gamma), elements::<H>(&beta));
        let mut y = into_elements::<H>(x);
        let rows = y.par_chunks_exact_mut(length).with_min_len(TASK.div_ceil(length));
        rows.for_each(|row| body.layer_norm([&gamma_of, &beta_of], epsilon as f32, row));
        drop((gamma_of, beta_of));
        write_like::<H, 2>(&gamma, y, [n, length])
    }
}
