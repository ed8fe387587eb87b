//! How much memory a program has from its allocator, exactly.

mod allocator;
mod arenas;
mod peak;

pub use allocator::{AllocatorCounts, CountingAllocator};
pub use arenas::limit_malloc_arenas;
pub use peak::PeakWatch;
