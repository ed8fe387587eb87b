//! The stack made of fused layers, and of Burn's own convolution on an accelerator.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics, reference};
use crate::batch_norm::fused::inverse_deviation;
use crate::batch_norm::{NormStatistics, normalise};
use crate::conv2d::conv2d;
use crate::conv2d::reference::grouped;
use crate::layers::{goes_into_f32, wide};
use crate::norm_relu::Rectified;

/// The same as [`conv_stack`](super::conv_stack()).
///
/// In a low precision the maps between blocks stay of the low type: a convolution rounds its images
/// to it, so a normalisation that writes it loses nothing, and moves half of the bytes.
pub fn conv_stack<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
) -> StackOutput<B> {
    let convolve = |x: Tensor<B, 4>, weight: Tensor<B, 4>, how: [usize; 3]| {
        let (x, weight) = match options.precision.low() {
            Some(low) => (x.cast(low), weight.cast(low)),
            None => (x, weight),
        };
        match how {
            [stride, padding, 1] => conv2d(x, weight, None, stride, padding),
            _ => grouped(x, weight, None, how),
        }
    };
    reference::compose(images, blocks, statistics, options, convolve, finish)
}

/// What comes after a block's convolution.
///
/// A bias is not added to the map. It only moves the mean that the batch's own normalisation takes
/// away again, so its gradient is zero, and there; given moments take it as a part of the shift.
fn finish<B: Backend>(
    y: Tensor<B, 4>,
    vectors: [Option<Tensor<B, 1>>; 3],
    running: Option<Moments<B>>,
    epsilon: f64,
    after: Rectified,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let [bias, gamma, beta] = if goes_into_f32(y.dtype()) { wide(vectors) } else { vectors };
    let share = bias.clone().map(|bias| match &running {
        None => bias * 0.0,
        Some(Moments { variance, .. }) => {
            let variance = variance.clone().detach().cast(bias.dtype());
            let scale = inverse_deviation(variance, epsilon);
            bias * gamma.clone().map_or(scale.clone(), |gamma| gamma * scale)
        }
    });
    let beta = match (beta, share) {
        (Some(beta), Some(share)) => Some(beta + share),
        (beta, share) => beta.or(share),
    };
    let statistics = running.map_or(NormStatistics::Batch, NormStatistics::Running);
    let (z, moments) = normalise("conv_stack", y, [gamma, beta], statistics, epsilon, Some(after));
    let moved = |of: Moments<B>| match bias {
        Some(bias) => Moments { mean: of.mean + bias.detach(), ..of },
        None => of,
    };
    (z, moments.map(moved))
}
