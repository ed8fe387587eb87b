//! What hardware is there, what it can do, and what fits on it.

mod bytes;
mod calibration;
mod capabilities;
mod config;
mod detect;
mod device_info;
mod device_key;
mod error;
#[cfg(test)]
mod fixtures;
mod inventory;
mod manager;
mod nearest;
mod placed;
mod platform;
mod platforms;
mod preference;
mod probe;
mod quiet;
mod registry;

pub use bytes::Bytes;
pub use calibration::{Calibration, Effort};
pub use capabilities::{Capabilities, DTypeSupport};
pub use config::{Checkpointing, Determinism, HardwareConfig, MemoryBudget, Precision};
pub use device_info::{DeviceClass, DeviceInfo, DeviceMemory, Tier};
pub use device_key::DeviceKey;
pub use error::HardwareError;
pub use inventory::{Inventory, Rejection};
pub use manager::{DifferentiableWork, HardwareManager};
pub use platform::{Found, Platform, Probed};
pub use platforms::{Work, run_on};
pub use preference::{DevicePreference, Selection};
pub use registry::{Detection, Isolation, Registry};
