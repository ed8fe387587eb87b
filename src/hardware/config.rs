use burn::config::Config;
use fewshot_kernels::Precision;
use serde::{Deserialize, Serialize};

use super::{Bytes, DevicePreference};

/// Requirements of a program on the hardware. The defaults are Burn's own: the best device, `f32`, all
/// cores, one device.
///
/// Choices that Burn makes when it is built (fusion, autotune) or within kernels (memory layout) cannot be
/// set here.
#[derive(Config, Debug, PartialEq)]
pub struct HardwareConfig {
    /// Preferred device. `auto` may take another one than the best and says so; anything else is that
    /// device or an error.
    #[config(default = "DevicePreference::Auto")]
    pub device: DevicePreference,
    /// Type of the heavy products; a device that does not compute in it is not usable.
    #[config(default = "Precision::F32")]
    pub precision: Precision,
    /// Threads of the CPU backends within [`HardwareManager::scope`](super::HardwareManager::scope);
    /// all cores if `None`.
    pub threads: Option<usize>,
    /// Number of devices to use at once; fewer is an error.
    #[config(default = 1)]
    pub devices: usize,
    /// Memory of a device that may be used; [`HardwareManager::budget`](super::HardwareManager::budget) gives
    /// the amount.
    #[config(default = "MemoryBudget::default()")]
    pub memory: MemoryBudget,
    /// Seed of the backend's random numbers, set when devices are detected.
    pub seed: Option<u64>,
    /// Repeatability of results.
    #[config(default = "Determinism::Free")]
    pub determinism: Determinism,
}

/// Activations that a backward pass recomputes, instead of keeping them from the forward pass.
///
/// This does not govern the inner steps of a learner that adapts by gradients: its own
/// [`SecondOrder::Chain`](crate::adapt::SecondOrder::Chain) computes every step again from the fast
/// weights, whatever is said here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpointing {
    /// Nothing.
    #[default]
    Nothing,
    /// Operations that cost little: Burn's `BalancedCheckpointing`, a type of the backend.
    Balanced,
    /// Whole segments of an encoder, each from what went into it:
    /// [`Segments`](crate::adapt::Segments), which a learner is asked for
    /// ([`EmbeddingLearner::with_checkpointing`](crate::learners::EmbeddingLearner::with_checkpointing)).
    /// The backend is a plain `Autodiff`.
    Segments,
}

/// Share or amount of a device's memory that may be used; nine tenths by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryBudget {
    /// This much.
    Bytes(Bytes),
    /// This share, between 0 and 1, of what was free when the device was tried.
    Share(f64),
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::Share(0.9)
    }
}

/// Repeatability of results, bit for bit, on the same machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// They may differ in the last digits.
    #[default]
    Free,
    /// They must repeat, with any number of threads. Only the processor's backends promise that:
    /// accelerators add in an order of their own.
    Required,
}
