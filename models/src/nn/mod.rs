//! Layers that can be differentiated twice, with the records of Burn's own.

pub(crate) mod batch_norm;
pub(crate) mod conv;
mod draw;
mod drop_block;
mod dropout;
mod film;
mod layer_norm;
mod linear;
mod running_average;

pub use batch_norm::{BatchNorm, BatchNormConfig, BnStatistics, RUNNING_AVERAGES};
pub use draw::{draw, drawn};
pub use drop_block::drop_block;
pub(crate) use dropout::{checked_drop_rate, is_drop_rate};
pub use dropout::{drop_path, dropout};
pub use fewshot_kernels::{
    global_avg_pool, global_avg_pool_lanes, leaky_relu, max_pool, overlapping_max_pool, relu6,
};
pub use film::{Film, FilmConfig};
pub(crate) use layer_norm::LayerNorm;
pub use linear::{Linear, LinearConfig};
pub use running_average::RunningAverage;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// ReLU of maps `[n, c, h, w]`: one pass each way, where Burn's keeps a mask besides.
pub(crate) fn relu<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    leaky_relu(x, 0.0)
}
