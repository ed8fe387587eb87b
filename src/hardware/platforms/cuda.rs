use std::env;

use burn::backend::Cuda as CudaBackend;
use burn::backend::cuda::CudaDevice;
use cubecl::cuda::CudaRuntime;
use cudarc::driver::{CudaContext, DriverError};

use super::{cube, nvidia};
use crate::hardware::panics::quietly;
use crate::hardware::{
    Bytes, DetectedDevice, DeviceClass, DeviceMemory, Platform, ProbeResult, Tier,
};

/// Nvidia's devices, through the driver's library; which of them, `CUDA_VISIBLE_DEVICES` says.
pub(super) struct Cuda;

pub(in crate::hardware) fn device(index: usize) -> CudaDevice {
    CudaDevice::new(index)
}

impl Platform for Cuda {
    fn name(&self) -> &str {
        "cuda"
    }

    fn tier(&self) -> Tier {
        Tier::Cuda
    }

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        let (class, tier) = (DeviceClass::DiscreteGpu, Tier::Cuda);
        let device = |index| {
            detected(index).unwrap_or_else(|reason| DetectedDevice {
                // It does not even tell its name; its probe will say why.
                driver: Some(reason),
                ..DetectedDevice::new(format!("NVIDIA device {index}"), class, tier)
            })
        };
        Ok((0..count()?).map(device).collect())
    }

    fn probe(&self, index: usize) -> Result<ProbeResult, String> {
        let tried = cube::probe::<CudaRuntime, CudaBackend>(&device(index))?;
        Ok(ProbeResult { memory: memory(index)?, ..tried })
    }
}

fn count() -> Result<usize, String> {
    let count =
        quietly(CudaContext::device_count).map_err(nvidia::panic_reason)?.map_err(|error| {
            match env::var("CUDA_VISIBLE_DEVICES") {
                Ok(visible) => format!("{} (CUDA_VISIBLE_DEVICES={visible})", reason(error)),
                Err(_) => reason(error),
            }
        })?;
    match usize::try_from(count) {
        Ok(0) | Err(_) => Err("the driver knows of no device".to_owned()),
        Ok(count) => Ok(count),
    }
}

fn detected(index: usize) -> Result<DetectedDevice, String> {
    let context = CudaContext::new(index).map_err(reason)?;
    let (major, minor) = context.compute_capability().map_err(reason)?;
    let name = context.name().map_err(reason)?;
    let driver = nvidia::driver_version().map(|version| format!("driver {version}, "));
    let driver = driver.unwrap_or_default() + &format!("compute capability {major}.{minor}");
    Ok(DetectedDevice {
        driver: Some(driver),
        ..DetectedDevice::new(name, DeviceClass::DiscreteGpu, Tier::Cuda)
    })
}

/// Memory of a device, from its driver.
pub(in crate::hardware) fn memory(index: usize) -> Result<DeviceMemory, String> {
    let context = CudaContext::new(index).map_err(reason)?;
    let (free, total) = context.mem_get_info().map_err(reason)?;
    let bytes = |bytes: usize| Some(Bytes(bytes as u64));
    Ok(DeviceMemory { total: bytes(total), free: bytes(free), unified: None })
}

fn reason(error: DriverError) -> String {
    format!("the driver says {:?}", error.0)
}
