//! Layers of pretrained networks: each in one pass on a host below autodiff, where networks embed. Those of transformers have their
//! gradients besides, under one level of autodiff.

pub(crate) mod attention;
pub(crate) mod depthwise;
pub(crate) mod fused_conv2d;
pub(crate) mod fused_linear;
pub(crate) mod gradients;
pub(crate) mod layer_norm;
mod options;
pub(crate) mod reference;
pub(crate) mod weight_cache;

pub use options::FusedConvOptions;
pub use weight_cache::WeightCache;

/// Multiply-adds that are worth a task of their own.
const TASK: usize = 1 << 20;

/// Rows of a product that are one task, of `rows` with so many multiply-adds each: as many tasks as there are threads,
/// unless these would be small.
fn rows_of_a_task(rows: usize, each: usize) -> usize {
    let tasks = (rows * each / TASK).clamp(1, rayon::current_num_threads());
    rows.div_ceil(tasks)
}
