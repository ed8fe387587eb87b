use std::path::Path;

use burn::backend::Rocm as RocmBackend;
use burn::backend::rocm::RocmDevice;
use burn::tensor::backend::Backend;
use cubecl::hip::HipRuntime;

use super::cube;
use crate::hardware::panics::quietly;
use crate::hardware::{DetectedDevice, DeviceClass, Platform, ProbeResult, Tier};

/// AMD's devices. Compiled, never run: no machine of ours has one.
pub(super) struct Rocm;

pub(in crate::hardware) fn device(index: usize) -> RocmDevice {
    RocmDevice::new(index)
}

impl Platform for Rocm {
    fn name(&self) -> &str {
        "rocm"
    }

    fn tier(&self) -> Tier {
        Tier::Rocm
    }

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        if cfg!(target_os = "linux") && !Path::new("/dev/kfd").exists() {
            return Err("the kernel has no AMD compute device (/dev/kfd)".to_owned());
        }
        let count = quietly(|| RocmBackend::<f32>::device_count(0))?;
        let name = |index| format!("AMD device {index}");
        let device = |index| DetectedDevice::new(name(index), DeviceClass::DiscreteGpu, Tier::Rocm);
        Ok((0..count).map(device).collect())
    }

    fn probe(&self, index: usize) -> Result<ProbeResult, String> {
        cube::probe::<HipRuntime, RocmBackend>(&device(index))
    }
}
