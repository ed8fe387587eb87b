//! What hardware is there, what it can do, and what fits on it.

mod bytes;
mod device_key;
mod error;
mod memory;

pub use bytes::Bytes;
pub use device_key::DeviceKey;
pub use error::HardwareError;
pub use fewshot_kernels::{AllocatorCounts, CountingAllocator};
pub use memory::{
    MemoryReport, MemoryScope, MemorySource, MemoryStats, guarded, memory_stats, release,
};
