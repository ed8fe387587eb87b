//! Layers of pretrained networks that embed: each in one pass on a host, below autodiff.

pub(crate) mod attention;
pub(crate) mod depthwise;
pub(crate) mod fused_conv2d;
pub(crate) mod fused_linear;
pub(crate) mod layer_norm;
mod options;
mod reference;

pub use options::FusedConvOptions;

/// Multiply-adds that are worth a task of their own.
const TASK: usize = 1 << 20;

/// Rows of a product that are one task, of `rows` with so many multiply-adds each: as many tasks as there are threads,
/// unless these would be small.
fn rows_of_a_task(rows: usize, each: usize) -> usize {
    let tasks = (rows * each / TASK).clamp(1, rayon::current_num_threads());
    rows.div_ceil(tasks)
}
