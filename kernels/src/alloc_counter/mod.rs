//! How much memory a program has from its allocator, exactly.

mod allocator;
mod peak;

pub use allocator::CountingAllocator;
pub use peak::PeakWatch;
