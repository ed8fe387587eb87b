//! Batch normalisation made of the primitives of [`channels`](crate::channels).

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::channels::{per_channel, rows};
use crate::host::{unwrap, wrap};
use crate::layers::FusedLayers;
use crate::norm_relu::rectified::Rectified;

/// `1 / sqrt(variance + epsilon)`.
pub fn inverse_deviation<B: Backend>(variance: Tensor<B, 1>, epsilon: f64) -> Tensor<B, 1> {
    let deviation = (variance + epsilon).sqrt();
    // Not `recip`: on NdArray it is the processor's estimate, good for 12 bits.
    deviation.ones_like() / deviation
}

/// A normalised map, with the values that its gradient needs.
pub struct Normalised<B: Backend> {
    pub y: FloatTensor<B>,
    /// `[2, c]`.
    pub moments: FloatTensor<B>,
    /// Mean, `gamma * inverse` and beta, `[c]` each.
    pub map: [FloatTensor<B>; 3],
    /// [`inverse_deviation`].
    pub inverse: Tensor<B, 1>,
}

/// A pass for the moments, and one that normalises, with what comes after that; `x` is
/// [laid out](FusedLayers::laid_out).
pub fn normalised<B: FusedLayers>(
    x: FloatTensor<B>,
    [gamma, beta]: [FloatTensor<B>; 2],
    epsilon: f64,
    after: Option<Rectified>,
) -> Normalised<B> {
    let moments = B::channel_moments(x.clone());
    let [mean, variance] = rows::<B>(moments.clone());
    let inverse = inverse_deviation(variance, epsilon);
    let map = [unwrap(mean), unwrap(wrap(gamma) * inverse.clone()), beta];
    let y = match after {
        Some(after) => B::activate(x, map.clone(), after),
        None => B::channel_affine(x, map.clone()),
    };
    Normalised { y, moments, map, inverse }
}

/// The share of the moments of a map `x` in its gradient, given the sums of that: the factor of a pixel's
/// deviation from the mean, and the mean that is taken away before `scale`.
pub fn moment_grad<B: Backend>(
    x: &FloatTensor<B>,
    [scale, inverse]: [FloatTensor<B>; 2],
    sums: FloatTensor<B>,
) -> [Tensor<B, 1>; 2] {
    let count = per_channel::<B>(x) as f64;
    let [sum, product] = rows::<B>(sums);
    let [scale, inverse] = [scale, inverse].map(wrap::<B, 1>);
    [scale * inverse.clone() * (inverse * product) / -count, sum / count]
}
