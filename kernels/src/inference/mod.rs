//! Layers of pretrained networks that embed: each in one pass on a host, below autodiff. On a backend that
//! differentiates, and on accelerators, plain operations run, and gradients flow.

pub(crate) mod attention;
pub(crate) mod depthwise;
pub(crate) mod fused_linear;
pub(crate) mod layer_norm;
pub(crate) mod pointwise;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::HostBackend;
use depthwise::DepthwiseOptions;
use fused_linear::LinearEpilogue;

/// The bodies of a host backend; tensors are f32, of checked shapes, and have elements.
#[allow(clippy::type_complexity)]
pub(crate) struct InferenceTable<B: Backend> {
    /// See [`attention`](crate::attention()).
    pub attention: fn(FloatTensor<B>, usize) -> FloatTensor<B>,
    /// See [`depthwise_conv2d`](crate::depthwise_conv2d()): the map, a window of 3 or 5 for each channel, scale and
    /// shift.
    pub depthwise: fn([FloatTensor<B>; 4], DepthwiseOptions) -> FloatTensor<B>,
    /// See [`fused_linear`](crate::fused_linear()): rows, weight and bias.
    pub fused_linear:
        fn([FloatTensor<B>; 3], LinearEpilogue<FloatTensor<B>, FloatTensor<B>>) -> FloatTensor<B>,
    /// See [`layer_norm`](crate::layer_norm()): rows, gain and shift.
    pub layer_norm: fn([FloatTensor<B>; 3], f64) -> FloatTensor<B>,
    /// See [`pointwise_conv2d`](crate::pointwise_conv2d()): the map, the weight, scale and shift.
    pub pointwise: fn([FloatTensor<B>; 4], [f32; 2], Option<FloatTensor<B>>) -> FloatTensor<B>,
}

impl<B: HostBackend> InferenceTable<B> {
    pub fn new() -> Self {
        Self {
            attention: attention::host::attention::<B>,
            depthwise: depthwise::host::depthwise::<B>,
            fused_linear: fused_linear::host::fused_linear::<B>,
            layer_norm: layer_norm::host::layer_norm::<B>,
            pointwise: pointwise::host::pointwise::<B>,
        }
    }
}

/// Multiply-adds that are worth a task of their own.
const TASK: usize = 1 << 20;

/// Rows of a product that are one task, of `rows` with so many multiply-adds each: as many tasks as there are threads,
/// unless these would be small.
fn rows_of_a_task(rows: usize, each: usize) -> usize {
    let tasks = (rows * each / TASK).clamp(1, rayon::current_num_threads());
    rows.div_ceil(tasks).next_multiple_of(8)
}
