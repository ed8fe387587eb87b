use std::any::Any;

use burn::tensor::backend::Backend;
use fewshot_kernels::CountingAllocator;

use super::host;
#[cfg(feature = "cube")]
use super::pool::Pool;
use super::stats::{MemorySource, MemoryStats};
use crate::machine::{self, Bytes};

/// The counter of a device's memory.
pub(super) enum Meter {
    /// By the program's allocator, if it counts.
    Host,
    /// By CubeCL.
    #[cfg(feature = "cube")]
    Pool(Pool),
    /// Nowhere that can be asked.
    Unknown,
}

impl Meter {
    /// The meter of a device, as the calling thread uses it.
    pub fn of<B: Backend>(device: &B::Device) -> Self {
        let device = device as &dyn Any;
        #[cfg(feature = "cube")]
        if let Some(pool) = Pool::on_device(device) {
            return Self::Pool(pool);
        }
        if is_elsewhere(device) { Self::Unknown } else { Self::Host }
    }

    /// The present counts.
    pub fn counted(&self) -> MemoryStats {
        match self {
            Self::Host => match CountingAllocator::in_use() {
                Some(in_use) => MemoryStats {
                    in_use: Some(Bytes(in_use)),
                    source: MemorySource::Allocator,
                    ..MemoryStats::default()
                },
                None => MemoryStats::default(),
            },
            #[cfg(feature = "cube")]
            Self::Pool(pool) => pool.counted(),
            Self::Unknown => MemoryStats::default(),
        }
    }

    /// Memory of the device and of the host, as driver and system tell it. Asking takes memory of the
    /// host for a moment.
    pub fn surroundings(&self) -> MemoryStats {
        let device = match self {
            Self::Host => machine::memory(),
            #[cfg(feature = "cube")]
            Self::Pool(pool) => pool.device_memory(),
            Self::Unknown => None,
        };
        let (total, free) = device.unzip();
        MemoryStats { total, free, host: host::resident(), ..MemoryStats::default() }
    }
}

/// The memory of a device now, after everything that was asked of it is done.
///
/// | device | counted by | `total`, `free` |
/// |---|---|---|
/// | Flex, NdArray, Candle on the CPU, any other Burn backend on the host | [`CountingAllocator`](crate::hardware::CountingAllocator), if the program has installed it | the machine's |
/// | wgpu | CubeCL | not known: wgpu does not tell |
/// | CUDA | CubeCL | the GPU's, from its driver |
/// | ROCm | CubeCL | not known |
/// | Candle on a GPU | nobody | not known |
///
/// A device of a backend that is not listed is taken for the host.
///
/// A failure that the device reports now, from operations before, is logged as a warning.
pub fn memory_stats<B: Backend>(device: &B::Device) -> MemoryStats {
    synchronise::<B>(device);
    let meter = Meter::of::<B>(device);
    let counted = meter.counted();
    counted.within(meter.surroundings())
}

/// Gives memory that is kept but not used back to the system: the pages of a CubeCL pool (of the
/// calling thread) and the buffers that fused operations keep on the CPU.
///
/// For between two phases: after the last tensor of a model is dropped, before another program or a
/// larger model needs the room. Never in every step: the next step asks for the same memory again,
/// which costs far more than keeping it.
///
/// Waits until the device has done everything; a failure it reports then is logged as a warning.
pub fn release<B: Backend>(device: &B::Device) {
    synchronise::<B>(device);
    B::memory_cleanup(device);
    fewshot_kernels::release_buffers();
    synchronise::<B>(device);
}

/// Waits until the device has done everything; a failure is logged.
pub(super) fn synchronise<B: Backend>(device: &B::Device) {
    if let Err(error) = B::sync(device) {
        log::warn!("{device:?} failed before its memory was read: {error}");
    }
}

/// `true` for a device without a pool whose tensors lie outside the host.
#[cfg(feature = "candle")]
#[allow(deprecated, reason = "Burn ends its Candle backend with 0.21")]
fn is_elsewhere(device: &dyn Any) -> bool {
    use burn::backend::candle::CandleDevice;
    let device = device.downcast_ref::<CandleDevice>();
    device.is_some_and(|device| !matches!(device, CandleDevice::Cpu))
}

#[cfg(not(feature = "candle"))]
fn is_elsewhere(_: &dyn Any) -> bool {
    false
}
