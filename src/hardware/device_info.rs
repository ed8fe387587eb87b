use serde::{Deserialize, Serialize};

use super::{Bytes, Capabilities, DeviceKey, Rejection};

/// A device that was found and that computed something when it was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Key by which the device is chosen.
    pub key: DeviceKey,
    /// Name that its driver gives it.
    pub name: String,
    /// Class of the device.
    pub class: DeviceClass,
    /// Where `auto` places it.
    pub tier: Tier,
    /// Name and version of its driver.
    pub driver: Option<String>,
    /// Why `auto` leaves it alone though it works.
    #[serde(default, alias = "passed_over")]
    pub skipped: Option<String>,
    /// Its memory.
    pub memory: DeviceMemory,
    /// Abilities of the device.
    pub capabilities: Capabilities,
    /// Milliseconds of the probe, which allocates, computes and reads back; the device's start is included.
    pub probe_ms: f64,
}

impl DeviceInfo {
    /// The device as one that cannot be used after all.
    pub(super) fn rejected(&self, reason: impl Into<String>) -> Rejection {
        let (what, reason) = (self.key.to_string(), reason.into());
        Rejection { what, tier: self.tier, tried: true, reason }
    }
}

/// Memory of a device; unknown is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// The device's whole memory; for a CPU, at most the limit of the control group.
    pub total: Option<Bytes>,
    /// Memory that was free when the device was tried.
    pub free: Option<Bytes>,
    /// True if the processor works on the same memory.
    pub unified: Option<bool>,
}

/// Class of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceClass {
    /// A graphics card.
    DiscreteGpu,
    /// A graphics unit that shares the processor's memory.
    IntegratedGpu,
    /// A graphics unit lent by a hypervisor.
    VirtualGpu,
    /// The processor.
    Cpu,
    /// The processor behind a graphics interface, as Mesa's llvmpipe.
    Software,
    /// Something else.
    Other,
}

/// The order of `auto`, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Nvidia's own interface.
    Cuda,
    /// AMD's own interface.
    Rocm,
    /// Apple's own interface.
    Metal,
    /// Hardware behind Vulkan or WebGPU, and platforms of one's own that say so.
    Gpu,
    /// The processor.
    Cpu,
    /// A software renderer.
    Software,
}

impl Tier {
    /// True for hardware other than the processor.
    pub fn is_accelerator(self) -> bool {
        self < Self::Cpu
    }
}
