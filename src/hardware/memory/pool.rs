use std::any::Any;
use std::sync::Once;

use cubecl::stream_id::StreamId;
use cubecl::{MemoryUsage, Runtime};

#[cfg(all(feature = "cuda", feature = "nvml"))]
use super::nvml;
use super::stats::{MemorySource, MemoryStats};
use crate::hardware::Bytes;

type Ask = dyn Fn() -> Option<MemoryUsage> + Send + Sync;

/// The memory pool that CubeCL keeps on a device for the operations of one thread.
pub(super) struct Pool {
    ask: Box<Ask>,
    /// Number of the device, if it is one of CUDA.
    cuda: Option<usize>,
}

impl Pool {
    /// The calling thread's pool on a device of a CubeCL backend.
    pub fn of(device: &dyn Any) -> Option<Self> {
        #[cfg(feature = "wgpu")]
        if let Some(device) = device.downcast_ref::<cubecl::wgpu::WgpuDevice>() {
            return Some(Self::on::<cubecl::wgpu::WgpuRuntime>(device.clone(), None));
        }
        #[cfg(feature = "cuda")]
        if let Some(device) = device.downcast_ref::<cubecl::cuda::CudaDevice>() {
            let index = Some(device.index);
            return Some(Self::on::<cubecl::cuda::CudaRuntime>(device.clone(), index));
        }
        #[cfg(feature = "rocm")]
        if let Some(device) = device.downcast_ref::<cubecl::hip::AmdDevice>() {
            return Some(Self::on::<cubecl::hip::HipRuntime>(device.clone(), None));
        }
        None
    }

    fn on<R: Runtime>(device: R::Device, cuda: Option<usize>) -> Self {
        let stream = StreamId::current();
        let ask = move || match stream.executes(|| R::client(&device).memory_usage()) {
            Ok(usage) => Some(usage),
            Err(error) => {
                log::warn!("{device:?} does not tell its memory: {error}");
                None
            }
        };
        Self { ask: Box::new(ask), cuda }
    }

    /// The pool as it is now. Operations that were waiting are handed to the device first.
    pub fn usage(&self) -> Option<MemoryUsage> {
        (self.ask)()
    }

    pub fn counted(&self) -> MemoryStats {
        let Some(usage) = self.usage() else { return MemoryStats::default() };
        MemoryStats {
            in_use: Some(Bytes(usage.bytes_in_use)),
            reserved: Some(Bytes(usage.bytes_reserved)),
            source: MemorySource::Pool,
            ..MemoryStats::default()
        }
    }

    /// Total and free memory of the device. wgpu has no way to ask; of CUDA's devices NVML knows,
    /// where it is compiled in, and else the driver.
    pub fn device_memory(&self) -> Option<(Bytes, Bytes)> {
        self.cuda.and_then(|index| nvml_or_driver(nvml_memory(index), || driver_memory(index)))
    }
}

/// Total and free memory.
type TotalAndFree = (Bytes, Bytes);

/// Memory of the device by NVML if that is compiled in and works, else by the driver. Why NVML fails is
/// logged the first time: memory is asked for again and again.
fn nvml_or_driver(
    nvml: Option<Result<TotalAndFree, String>>,
    driver: impl FnOnce() -> Option<TotalAndFree>,
) -> Option<TotalAndFree> {
    static LOGGED: Once = Once::new();
    match nvml {
        Some(Ok(memory)) => return Some(memory),
        Some(Err(reason)) => LOGGED.call_once(|| {
            log::warn!("NVML does not tell the memory of a device, the driver is asked: {reason}");
        }),
        None => {}
    }
    driver()
}

#[cfg(all(feature = "cuda", feature = "nvml"))]
fn nvml_memory(index: usize) -> Option<Result<TotalAndFree, String>> {
    Some(nvml::memory(index))
}

#[cfg(not(all(feature = "cuda", feature = "nvml")))]
fn nvml_memory(_: usize) -> Option<Result<TotalAndFree, String>> {
    None
}

#[cfg(feature = "cuda")]
fn driver_memory(index: usize) -> Option<TotalAndFree> {
    let memory = crate::hardware::platforms::cuda_memory(index).ok()?;
    memory.total.zip(memory.free)
}

#[cfg(not(feature = "cuda"))]
fn driver_memory(_: usize) -> Option<TotalAndFree> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_asked_where_nvml_fails() {
        let [nvml, driver] = [(Bytes(8), Bytes(5)), (Bytes(8), Bytes(4))];
        assert_eq!(nvml_or_driver(Some(Ok(nvml)), || unreachable!("NVML told")), Some(nvml));
        assert_eq!(
            nvml_or_driver(Some(Err("not supported".to_owned())), || Some(driver)),
            Some(driver)
        );
        assert_eq!(nvml_or_driver(None, || Some(driver)), Some(driver));
        assert_eq!(nvml_or_driver(Some(Err("not supported".to_owned())), || None), None);
    }
}
