//! What hardware is there, what it can do, and what fits on it.

mod batch_size;
mod bytes;
mod device_key;
mod error;
mod fit;
mod memory;
mod plan;
mod profile;
mod sourced;
mod trial;

pub use batch_size::{SearchReport, find_batch_size};
pub use bytes::Bytes;
pub use device_key::DeviceKey;
pub use error::HardwareError;
pub use fewshot_kernels::{AllocatorCounts, CountingAllocator};
pub use fit::MemoryFit;
pub use memory::{
    MemoryReport, MemoryScope, MemorySource, MemoryStats, guarded, memory_stats, release,
};
pub use plan::{
    Activations, Algorithm, InnerGraphs, MemoryPlan, MemoryPlanner, PlanLine, TaskShape,
};
pub use profile::{ModelProfile, OptimizerKind, ParameterProfile, record_size};
pub use sourced::{Source, Sourced};
pub use trial::{Trial, TrialMeasure, TrialOutcome};
