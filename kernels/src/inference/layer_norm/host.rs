//! The normalisation of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use rayon::prelude::*;

use crate::cpu::instruction_set::chosen;
use crate::host::{HostBackend, elements, into_elements, write_like};

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 14;

/// See [`HostTable`](crate::host::HostTable).
pub fn layer_norm<B: HostBackend>(
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
