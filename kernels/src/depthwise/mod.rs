//! Convolution of each channel by itself, with both of its gradients.

mod autodiff;
mod host;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::conv2d::Role;
use crate::host::{unwrap, wrap};
use crate::inference::{FusedConvOptions, reference};
use crate::registry::{self, Operation};
use fewshot_simd::depthwise_maps::DepthwiseShape;

/// A convolution of each channel by itself, as mobile networks have them. It can be differentiated twice.
///
/// Windows other than 3 and 5, types other than f32, and accelerators take Burn's own convolution.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`
/// - `filters`: `[c, 1, k, k]`
/// - `stride`: distance between windows, 1 or 2
/// - `padding`: zeros above, to the left, below and to the right; fewer than `k`
/// - returns `[n, c, (h + top + bottom - k) / stride + 1, (w + left + right - k) / stride + 1]`
///
/// # Conventions
/// The PyTorch equivalent is `F.conv2d(F.pad(x, ...), filters, stride=stride, groups=c)`.
///
/// # Panics
/// When the shapes do not fit.
pub fn depthwise<B: Backend>(
    x: Tensor<B, 4>,
    filters: Tensor<B, 4>,
    stride: usize,
    padding: [usize; 4],
) -> Tensor<B, 4> {
    let ([n, channels, h, w], window) = (x.dims(), filters.dims()[3]);
    assert_eq!(filters.dims(), [channels, 1, window, window], "a filter for each channel");
    let bounds = [f32::NEG_INFINITY, f32::INFINITY];
    let options = FusedConvOptions { stride, padding, bounds };
    let out = options.checked(x.dims(), window);
    if n * channels == 0 {
        return Tensor::empty([n, channels, out[0], out[1]], (&x.device(), x.dtype()));
    }
    let body = registry::f32_body::<B, Depthwise>("depthwise", [x.dtype(), filters.dtype()]);
    match body.filter(|_| matches!(window, 3 | 5)) {
        Some(body) => {
            let [top, left, ..] = padding;
            let shape = DepthwiseShape {
                n,
                channels,
                size: [h, w],
                out,
                window,
                stride,
                before: [top, left],
            };
            let form = Depthwise { role: Role::Output, shape };
            wrap(body([unwrap(x), unwrap(filters)], &form))
        }
        None => reference::convolved(x, filters, channels, options),
    }
}

/// The derivative of `<dy, conv(x, w)>` by the operand of a role, given the two whose roles follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise {
    role: Role,
    shape: DepthwiseShape,
}

impl Operation for Depthwise {
    type Operands<B: Backend> = [FloatTensor<B>; 2];
    type Results<B: Backend> = FloatTensor<B>;
}
