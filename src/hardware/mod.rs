//! What hardware is there, what it can do, and what fits on it.

mod bytes;
mod device_key;
mod error;
mod profile;
mod sourced;

pub use bytes::Bytes;
pub use device_key::DeviceKey;
pub use error::HardwareError;
pub use profile::{ModelProfile, OptimizerKind, ParameterProfile, record_size};
pub use sourced::{Source, Sourced};
