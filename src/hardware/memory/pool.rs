use std::any::Any;

use cubecl::stream_id::StreamId;
use cubecl::{MemoryUsage, Runtime};

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
    pub fn on_device(device: &dyn Any) -> Option<Self> {
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

    /// Total and free memory of the device. wgpu has no way to ask; of CUDA's devices the driver knows.
    pub fn device_memory(&self) -> Option<(Bytes, Bytes)> {
        self.cuda.and_then(driver_memory)
    }
}

#[cfg(feature = "cuda")]
fn driver_memory(index: usize) -> Option<(Bytes, Bytes)> {
    let memory = crate::hardware::platforms::cuda::memory(index).ok()?;
    memory.total.zip(memory.free)
}

#[cfg(not(feature = "cuda"))]
fn driver_memory(_: usize) -> Option<(Bytes, Bytes)> {
    None
}
