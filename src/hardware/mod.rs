//! What hardware is there, what it can do, and what fits on it.

mod bytes;
mod device_key;
mod error;
mod placement;
mod pool;

pub use bytes::Bytes;
pub use device_key::DeviceKey;
pub use error::HardwareError;
pub use placement::{
    DeviceLoad, PlacedModel, Placement, PlacementError, PlacementPolicy, place, replicate,
};
pub use pool::{
    Footprint, HostRecord, Lease, ModelKey, ModelPool, PoolError, PoolStatistics, PoolUsage,
    Pooled, module_bytes,
};
