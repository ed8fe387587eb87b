//! How much memory is used, and what running out of it looks like.

mod host;
mod meter;
#[cfg(feature = "cube")]
mod pool;
#[cfg(any(test, feature = "cube"))]
mod sampler;
mod scope;
mod stats;

pub use scope::{MemoryReport, MemoryScope};
pub use stats::{MemorySource, MemoryStats, memory_stats};
