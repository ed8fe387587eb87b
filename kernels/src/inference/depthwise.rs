//! Convolution of each channel by itself.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use fewshot_simd::depthwise_maps::{DepthwiseShape, Epilogue};
use fewshot_simd::instruction_set::InstructionSet;

use super::{FusedConvOptions, reference};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, unwrap, wrap, write_like};
use crate::registry::{self, Operation, Runs};

/// A convolution of each channel by itself, times `scale` plus `shift` by channel, within bounds: the layer of
/// mobile networks with batch-norm by running averages and ReLU6.
///
/// Windows other than 3 and 5 run as plain operations.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`
/// - `filters`: `[c, 1, k, k]`
/// - `scale`, `shift`: `[c]`
/// - returns `[n, c, (h + top + bottom - k) / stride + 1, (w + left + right - k) / stride + 1]`
///
/// # Conventions
/// The PyTorch equivalent is `(F.conv2d(F.pad(x, ...), filters, stride=stride, groups=c) * scale + shift).clamp(*bounds)`.
///
/// # Panics
/// When the shapes do not fit, or the options are none.
pub fn depthwise_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    filters: Tensor<B, 4>,
    [scale, shift]: [Tensor<B, 1>; 2],
    options: FusedConvOptions,
) -> Tensor<B, 4> {
    let ([_, channels, ..], window) = (x.dims(), filters.dims()[3]);
    assert_eq!(filters.dims(), [channels, 1, window, window], "a filter for each channel");
    assert_eq!([&scale, &shift].map(|of| of.dims()), [[channels]; 2], "a value for each channel");
    let (n, [rows, columns]) = (x.dims()[0], options.checked(x.dims(), window));
    if n * channels == 0 {
        let shape = [n, channels, rows, columns];
        return Tensor::empty(shape, (&x.device(), x.dtype()));
    }
    let types = [x.dtype(), filters.dtype(), scale.dtype(), shift.dtype()];
    let body = registry::f32_body::<B, DepthwiseConv>("depthwise_conv2d", types);
    match body.filter(|_| matches!(window, 3 | 5)) {
        Some(body) => {
            let operands = [unwrap(x), unwrap(filters), unwrap(scale), unwrap(shift)];
            wrap(body(operands, &DepthwiseConv(options)))
        }
        None => reference::depthwise_conv2d(x, filters, [scale, shift], options),
    }
}

/// The convolution of a map with a window of 3 or 5 for each channel, scale and shift.
pub(crate) struct DepthwiseConv(FusedConvOptions);

impl Operation for DepthwiseConv {
    type Operands<B: Backend> = [FloatTensor<B>; 4];
    type Results<B: Backend> = FloatTensor<B>;
}

impl<H: HostBackend> Runs<DepthwiseConv> for H {
    fn run(
        tensors: [FloatTensor<H>; 4],
        &DepthwiseConv(options): &DepthwiseConv,
    ) -> FloatTensor<H> {
        let shape @ [n, c, ..]: [usize; 4] = tensors[0].shape().dims();
        let window = tensors[1].shape()[3];
        let size = options.out(shape, window).expect("checked by the caller");
        let values = tensors.each_ref().map(elements::<H>);
        let values = values.each_ref().map(|of| &**of);
        let y = depthwise(chosen(), values, shape, size, options);
        write_like::<H, 4>(&tensors[0], y, [n, c, size[0], size[1]])
    }
}

/// The convolution of `x` `[n, c, h, w]`, of which there is at least one.
fn depthwise(
    body: &dyn InstructionSet,
    [x, filters, scale, shift]: [&[f32]; 4],
    [n, channels, h, w]: [usize; 4],
    out: [usize; 2],
    FusedConvOptions { stride, padding: [top, left, ..], bounds }: FusedConvOptions,
) -> Vec<f32> {
    let window = (filters.len() / channels).isqrt();
    let before = [top, left];
    let shape = DepthwiseShape { n, channels, size: [h, w], out, window, stride, before };
    shape.finished_output(body, x, filters, &Epilogue { scale, shift, bounds })
}

#[cfg(test)]
mod tests {
    use fewshot_simd::instruction_set::bodies;
    use fewshot_simd::integers;

    use super::*;

    /// Small integers, so that sums do not depend on their order.
    #[test]
    fn every_shape_is_filtered_by_the_formula() {
        let sizes = [[1, 1], [3, 5], [7, 16], [14, 14], [16, 33], [31, 17], [5, 65]];
        for (size, window) in sizes.into_iter().flat_map(|size| [3, 5].map(|window| (size, window)))
        {
            for (stride, padding) in
                [(1, [window / 2; 4]), (2, [0, 1, 2, 1]), (2, [2, 2, 1, 1]), (1, [2, 0, 1, 2])]
            {
                let options = FusedConvOptions { stride, padding, bounds: [-40.0, 60.0] };
                let ([h, w], channels) = (size, 3);
                let Some(out) = options.out([2, channels, h, w], window) else { continue };
                let x = integers(2 * channels * h * w, 1);
                let filters = integers(channels * window * window, 2);
                let (scale, shift) = ([1.0, -2.0, 0.5], [0.0, 3.0, -1.0]);
                let at = |plane: usize, y: usize, x_at: usize| {
                    let (y, x_at) = (y.wrapping_sub(padding[0]), x_at.wrapping_sub(padding[1]));
                    if y < h && x_at < w { x[(plane * h + y) * w + x_at] } else { 0.0 }
                };
                let mut expected = Vec::new();
                for (plane, y, x_at) in (0..2 * channels).flat_map(|plane| {
                    (0..out[0]).flat_map(move |y| (0..out[1]).map(move |x| (plane, y, x)))
                }) {
                    let channel = plane % channels;
                    let taps = (0..window * window).map(|tap| {
                        let [i, j] = [tap / window, tap % window];
                        filters[channel * window * window + tap]
                            * at(plane, y * stride + i, x_at * stride + j)
                    });
                    let sum: f32 = taps.sum();
                    expected.push((sum * scale[channel] + shift[channel]).clamp(-40.0, 60.0));
                }
                for body in bodies() {
                    let tensors = [&x[..], &filters, &scale, &shift];
                    let actual = depthwise(body, tensors, [2, channels, h, w], out, options);
                    assert_eq!(actual, expected, "{} {size:?} {window} {options:?}", body.name());
                }
            }
        }
    }
}
