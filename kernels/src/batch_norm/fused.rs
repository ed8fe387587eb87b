//! Batch normalisation made of the primitives of [`channels`](crate::channels).

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::channels::rows;
use crate::host::{unwrap, wrap};
use crate::layers::FusedLayers;

/// `1 / sqrt(variance + epsilon)`.
pub fn inverse_deviation<B: Backend>(variance: Tensor<B, 1>, epsilon: f64) -> Tensor<B, 1> {
    let deviation = (variance + epsilon).sqrt();
    // Not `recip`: on NdArray it is the processor's estimate, good for 12 bits.
    deviation.ones_like() / deviation
}

/// A pass for the moments, and one that normalises.
pub fn normalise<B: FusedLayers>(
    x: FloatTensor<B>,
    [gamma, beta]: [FloatTensor<B>; 2],
    epsilon: f64,
) -> [FloatTensor<B>; 2] {
    let moments = B::channel_moments(x.clone());
    let [mean, variance] = rows::<B>(moments.clone());
    let scale = wrap(gamma) * inverse_deviation(variance, epsilon);
    [B::channel_affine(x, [unwrap(mean), unwrap(scale), beta]), moments]
}
