//! Devices: detection, abilities, memory, and the models that fit.

// Without a feature for a backend, there is no device to look for.
#![cfg_attr(
    not(any(
        feature = "flex",
        feature = "ndarray",
        feature = "candle",
        feature = "wgpu",
        feature = "cuda",
        feature = "rocm"
    )),
    allow(dead_code, unused_imports, unused_variables)
)]

mod batch_size;
mod calibration;
mod capabilities;
mod config;
mod detect;
mod device_info;
mod device_key;
mod error;
mod fit;
#[cfg(test)]
mod fixtures;
mod inventory;
mod kernel_cache;
mod manager;
mod memory;
pub(crate) mod panics;
mod placement;
mod plan;
mod platform;
mod platforms;
mod pool;
mod preference;
mod profile;
mod provenance;
mod registry;
mod to_device;

pub use crate::machine::Bytes;
pub use batch_size::{SearchBudget, SearchReport, Trial, find_batch_size};
pub use calibration::{Calibration, Effort};
pub use capabilities::{Capabilities, DTypeSupport};
pub use config::{Checkpointing, Determinism, HardwareConfig, MemoryBudget};
pub use device_info::{DeviceClass, DeviceInfo, DeviceMemory, Tier};
pub use device_key::DeviceKey;
pub use error::HardwareError;
pub use fewshot_kernels::{CountingAllocator, Precision};
pub use fit::MemoryFit;
pub use inventory::{Inventory, Rejection};
pub use kernel_cache::{keep_compiled_kernels, log_launches};
pub use manager::{HardwareManager, Work, run_on};
pub(crate) use memory::devices_guarded;
pub use memory::{
    MemoryReport, MemoryScope, MemorySource, MemoryStats, guarded, memory_stats, release,
};
pub use placement::{DeviceLoad, PlacedModel, Placement, place};
pub use plan::{Activations, MemoryPlan, MemoryPlanner, Method, PlanLine, TaskShape};
pub use platform::{DetectedDevice, Platform, ProbeResult};
pub use pool::{ModelPool, PoolError};
pub use preference::{DevicePreference, Selection};
pub use profile::{ModelProfile, OptimizerKind, ParameterProfile};
pub use provenance::{MemoryFigure, Provenance};
pub use registry::{Detection, Isolation, Registry};
pub(crate) use to_device::to_device;
