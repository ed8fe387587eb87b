//! How much memory a program has from its allocator, exactly.

mod allocator;
mod heaps;
mod peak;

pub use allocator::{AllocatorCounts, CountingAllocator};
pub use heaps::limit_heaps;
pub use peak::PeakWatch;
