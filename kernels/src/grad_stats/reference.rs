//! The statistics in plain Burn operations, with one read-back.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata};

use super::{GradParts, PART};
use crate::host::{read, unwrap, wrap};

/// Every gradient times `factor`, and the sum of all squares of the result; there is a gradient, and all have
/// elements.
pub fn grad_stats<B: Backend>(
    gradients: Vec<FloatTensor<B>>,
    factor: f64,
) -> (Vec<FloatTensor<B>>, f64) {
    let scale = |gradient| match factor {
        1.0 => gradient,
        // The rank does not matter to a product with a number.
        factor => B::float_mul_scalar(gradient, burn::tensor::Scalar::from(factor)),
    };
    let gradients: Vec<_> = gradients.into_iter().map(scale).collect();
    let parts: Vec<_> = gradients.iter().map(|gradient| part::<B>(gradient.clone())).collect();
    let device = parts[0].device();
    let parts = parts.into_iter().map(|part| part.to_device(&device)).collect();
    let parts = read(Tensor::cat(parts, 0));
    (gradients, parts.chunks_exact(PART).map(squares).sum())
}

/// A part of each gradient, on its device; all have elements.
pub(crate) fn grad_parts<B: Backend>(gradients: Vec<FloatTensor<B>>) -> GradParts<B> {
    (gradients.into_iter().map(|gradient| unwrap(part::<B>(gradient))).collect(), squares)
}

/// The largest magnitude, the sum of the squares divided by its square, and the plain sum, which is
/// there for what is not finite.
fn part<B: Backend>(gradient: FloatTensor<B>) -> Tensor<B, 1> {
    let elements = [gradient.shape().num_elements()];
    let g = wrap::<B, 1>(B::float_reshape(gradient, elements.into())).cast(DType::F32);
    let largest = g.clone().abs().max();
    let small = g.clone() / largest.clone();
    let sum = |x: Tensor<B, 1>| (x.clone() * x).sum();
    Tensor::cat(vec![largest, sum(small), sum(g)], 0)
}

fn squares(part: &[f32]) -> f64 {
    let [largest, small, plain] = [part[0], part[1], part[2]].map(f64::from);
    if plain.is_nan() || largest == 0.0 || largest.is_infinite() {
        // Of nothing but zeros, it is exact; of others, the norm is no number either.
        return plain;
    }
    largest * largest * small
}
