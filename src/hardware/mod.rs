//! What hardware is there, what it can do, and what fits on it.

mod bytes;
mod device_key;
mod error;

pub use bytes::Bytes;
pub use device_key::DeviceKey;
pub use error::HardwareError;
