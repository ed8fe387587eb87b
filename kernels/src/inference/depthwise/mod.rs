//! Convolution of each channel by itself.

pub(crate) mod cpu;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{FusedConvOptions, reference};
use crate::host::{HostTable, unwrap, wrap};
use crate::registry;

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
        return Tensor::zeros(shape, (&x.device(), x.dtype()));
    }
    let types = [x.dtype(), filters.dtype(), scale.dtype(), shift.dtype()];
    let table = registry::f32_table::<HostTable<B>>("depthwise_conv2d", types);
    match table.filter(|_| matches!(window, 3 | 5)) {
        Some(table) => {
            let of = [unwrap(x), unwrap(filters), unwrap(scale), unwrap(shift)];
            wrap((table.depthwise)(of, options))
        }
        None => reference::depthwise_conv2d(x, filters, [scale, shift], options),
    }
}
