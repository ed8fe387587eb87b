//! The power of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use crate::host::{HostBackend, elements, write_like};

/// Sums side by side, which compilers turn into vectors.
const LANES: usize = 32;

/// See [`HostTable`](crate::host::HostTable).
pub fn inverse_power<B: HostBackend>(
    x: FloatTensor<B>,
    mean: Option<FloatTensor<B>>,
    tau: f64,
) -> [FloatTensor<B>; 2] {
    let now = squares(&elements::<B>(&x)) / x.shape()[0] as f32;
    let mean = match mean {
        Some(mean) => {
            let mean = elements::<B>(&mean)[0];
            mean + (now - mean) / tau as f32
        }
        None => now,
    };
    // A mean that is NaN stays.
    let power = if mean < now { now } else { mean };
    let inverse = if power <= f32::MIN_POSITIVE { 0.0 } else { power.recip() };
    [inverse, mean].map(|number| write_like::<B, 1>(&x, vec![number], [1]))
}

fn squares(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x * x);
    }
    sums.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>()
}
