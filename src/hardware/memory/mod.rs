//! Counts of the memory in use, and errors of memory that runs out.

mod host;
mod meter;
mod out_of_memory;
#[cfg(feature = "cube")]
mod pool;
#[cfg(any(test, feature = "cube"))]
mod sampler;
mod scope;
mod stats;

pub use meter::{memory_stats, release};
pub(crate) use out_of_memory::devices_guarded;
pub use out_of_memory::guarded;
pub use scope::{MemoryReport, MemoryScope};
pub use stats::{MemorySource, MemoryStats};
