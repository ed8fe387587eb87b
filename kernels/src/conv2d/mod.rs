//! Two-dimensional convolution with square windows.

pub(crate) mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments)]
pub(crate) mod cube;
pub mod reference;
pub(crate) mod shape;

pub(crate) use shape::check;
pub use shape::{ConvShape, Role};

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use crate::fallback::{all_taken, log_once};
use crate::host::{unwrap, wrap};
use crate::layers::{LayerTable, through_f32, types, wide};
use crate::registry;

/// Convolves `x` with `weight` and adds `bias`.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`
/// - `weight`: `[o, c, k, k]`
/// - `bias`: `[o]`
/// - output: `[n, o, (h + 2 padding - k) / stride + 1, (w + 2 padding - k) / stride + 1]`, rounded
///   down
///
/// # Conventions
/// A correlation, as in PyTorch: the window is not turned. The equivalent there is
/// `F.conv2d(x, weight, bias, stride, padding)`. Windows of 1x1, 3x3, 5x5 and 7x7 whose padding keeps
/// the size, with stride 1 or 2, are fused on a host, and all windows on an accelerator, where tensor cores multiply
/// operands of f16 and bf16, with sums in f32; other ones run as Burn's own convolution. A fused body need
/// not multiply the zeros of the padding, so a weight that is not finite need not show where it meets these
/// alone.
///
/// # Panics
/// When the shapes do not fit.
pub fn conv2d<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    bias: Option<Tensor<B, 1>>,
    stride: usize,
    padding: usize,
) -> Tensor<B, 4> {
    with_tf32(x, weight, bias, [stride, padding], false)
}

/// [`conv2d`](conv2d()), whose operands of f32 tensor cores may round to TF32 where `tf32`.
pub(crate) fn with_tf32<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    bias: Option<Tensor<B, 1>>,
    [stride, padding]: [usize; 2],
    tf32: bool,
) -> Tensor<B, 4> {
    let shape = check(x.dims(), weight.dims(), bias.as_ref(), (stride, padding));
    let shape = ConvShape { tf32, ..shape };
    let of = x.dtype();
    let elements = || types([&bias]).chain([of, weight.dtype()]);
    if let Some(low) = through_f32::<B>(of, elements()) {
        let [bias] = wide([bias]);
        let (x, weight) = (x.cast(FloatDType::F32), weight.cast(FloatDType::F32));
        return with_tf32(x, weight, bias, [stride, padding], tf32).cast(low);
    }
    let takes = |_: &&LayerTable<B>| {
        let takes = registry::taken::<B>();
        all_taken("conv2d", elements(), |dtype| dtype == of && takes(dtype))
    };
    let Some(table) = registry::table().filter(takes) else {
        return reference::conv2d(x, weight, bias, stride, padding);
    };
    if registry::on_host::<B>() && !cpu::serves(&shape) {
        let side = shape.kernel;
        let text = format!("windows of {side}x{side} with stride {stride} and padding {padding}");
        log_once("conv2d", text);
        return reference::conv2d(x, weight, bias, stride, padding);
    }
    let y = (table.convolution)(Role::Output, [unwrap(x), unwrap(weight)], &shape);
    let [Some(bias)] = wide([bias]) else { return wrap(y) };
    let (zero, one) = (bias.zeros_like(), bias.ones_like());
    wrap((table.channel_affine)(y, [zero, one, bias].map(unwrap)))
}

/// Parts that an accelerator computes the gradient of a weight in, of so many output channels, of `depth`
/// input channels times pixels of the window, over so many pixels of the output, in each of the lanes.
pub fn weight_parts(outputs: usize, depth: usize, pixels: usize, lanes: usize) -> usize {
    let cubes = depth.div_ceil(WEIGHT_TILE) * outputs.div_ceil(WEIGHT_TILE) * lanes;
    (MOST_CUBES / cubes.max(1)).min(pixels.div_ceil(LEAST_PIXELS)).clamp(1, MOST_PARTS)
}

/// Side of the tile of a weight's gradient that is one cube's work.
const WEIGHT_TILE: usize = 64;

/// Cubes that a large gradient is split among: enough to fill a device.
const MOST_CUBES: usize = 1024;

/// Parts of a sum, at most: two cubes for each multiprocessor of an H100, where a gradient is one tile.
const MOST_PARTS: usize = 264;

/// Pixels that a part has, at least.
const LEAST_PIXELS: usize = 256;
