//! Layers that can be differentiated twice, with the records of Burn's own.

pub(crate) mod batch_norm;
mod draw;
mod linear;
mod pool;
mod running_average;

pub use batch_norm::{BatchNorm, BatchNormConfig, BnStatistics};
pub use draw::drawn;
pub use linear::{Linear, LinearConfig};
pub use pool::{global_avg_pool, max_pool};
pub use running_average::RunningAverage;
