//! Convolution of each channel by itself.

pub(crate) mod cpu;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::reference;
use crate::host::{HostTable, unwrap, wrap};
use crate::registry;

/// How the window goes over a map, and what is made of its sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthwiseOptions {
    /// Distance of windows, 1 or 2.
    pub stride: usize,
    /// Zeros above, to the left, below and to the right; fewer than the window's side.
    pub padding: [usize; 4],
    /// Least and largest value of the result: 0 and 6 of a ReLU6.
    pub bounds: [f32; 2],
}

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
    options: DepthwiseOptions,
) -> Tensor<B, 4> {
    let ([_, channels, ..], window) = (x.dims(), filters.dims()[3]);
    assert_eq!(filters.dims(), [channels, 1, window, window], "a filter for each channel");
    assert_eq!([&scale, &shift].map(|of| of.dims()), [[channels]; 2], "a value for each channel");
    let DepthwiseOptions { stride, padding, bounds: [least, most] } = options;
    assert!(matches!(stride, 1 | 2), "a stride of 1 or 2, found {stride}");
    assert!(x.dims()[2] * x.dims()[3] > 0, "a map has pixels, found {:?}", x.dims());
    assert!(padding.iter().all(|side| *side < window), "fewer zeros than {window}: {padding:?}");
    assert!(least <= most, "bounds from the least to the largest, found {least} and {most}");
    let ([n, ..], Some([rows, columns])) = (x.dims(), options.out(x.dims(), window)) else {
        panic!("a map of {:?} is smaller than a window of {window}", x.dims());
    };
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

impl DepthwiseOptions {
    /// Height and width of the result, unless the map is smaller than a window.
    fn out(&self, [_, _, h, w]: [usize; 4], window: usize) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.padding;
        let steps = |side: usize| Some(side.checked_sub(window)? / self.stride + 1);
        Some([steps(h + top + bottom)?, steps(w + left + right)?])
    }
}
