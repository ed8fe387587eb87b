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
use crate::registry::function_table;
use depthwise::DepthwiseOptions;
use fused_linear::LinearEpilogue;

/// A backend with fused bodies for them. Tensors are f32, of checked shapes, and have elements.
pub(crate) trait FusedInference: Backend {
    /// See [`attention`](crate::attention()).
    fn fused_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self>;

    /// See [`depthwise_conv2d`](crate::depthwise_conv2d()): the map, a window of 3 or 5 for each channel, scale and
    /// shift.
    fn depthwise(of: [FloatTensor<Self>; 4], options: DepthwiseOptions) -> FloatTensor<Self>;

    /// See [`fused_linear`](crate::fused_linear()): rows, weight and bias.
    fn fused_linear(
        of: [FloatTensor<Self>; 3],
        epilogue: LinearEpilogue<FloatTensor<Self>, FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// See [`layer_norm`](crate::layer_norm()): rows, gain and shift.
    fn fused_layer_norm(of: [FloatTensor<Self>; 3], epsilon: f64) -> FloatTensor<Self>;

    /// See [`pointwise_conv2d`](crate::pointwise_conv2d()): the map, the weight, scale and shift.
    fn pointwise(
        of: [FloatTensor<Self>; 4],
        bounds: [f32; 2],
        add: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;
}

function_table! {
    /// The functions of those.
    InferenceTable of FusedInference {
        pub fused_attention: fn(FloatTensor<B>, usize) -> FloatTensor<B>,
        pub depthwise: fn([FloatTensor<B>; 4], DepthwiseOptions) -> FloatTensor<B>,
        pub fused_linear: fn(
            [FloatTensor<B>; 3],
            LinearEpilogue<FloatTensor<B>, FloatTensor<B>>,
        ) -> FloatTensor<B>,
        pub fused_layer_norm: fn([FloatTensor<B>; 3], f64) -> FloatTensor<B>,
        pub pointwise: fn([FloatTensor<B>; 4], [f32; 2], Option<FloatTensor<B>>) -> FloatTensor<B>,
    }
}

impl<B: HostBackend> FusedInference for B {
    fn fused_attention(qkv: FloatTensor<B>, heads: usize) -> FloatTensor<B> {
        attention::host::attention::<B>(qkv, heads)
    }

    fn depthwise(of: [FloatTensor<B>; 4], options: DepthwiseOptions) -> FloatTensor<B> {
        depthwise::host::depthwise::<B>(of, options)
    }

    fn fused_linear(
        of: [FloatTensor<B>; 3],
        epilogue: LinearEpilogue<FloatTensor<B>, FloatTensor<B>>,
    ) -> FloatTensor<B> {
        fused_linear::host::fused_linear::<B>(of, epilogue)
    }

    fn fused_layer_norm(of: [FloatTensor<B>; 3], epsilon: f64) -> FloatTensor<B> {
        layer_norm::host::layer_norm::<B>(of, epsilon)
    }

    fn pointwise(
        of: [FloatTensor<B>; 4],
        bounds: [f32; 2],
        add: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        pointwise::host::pointwise::<B>(of, bounds, add)
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
