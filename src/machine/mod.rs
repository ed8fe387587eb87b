//! The machine that a process runs on.

mod bytes;
mod memory;

pub use bytes::Bytes;
pub(crate) use memory::memory;
