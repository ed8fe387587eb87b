//! The platforms that Burn has backends for.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "cuda")]
mod cuda;
mod host;
#[cfg(any(feature = "cuda", test))]
mod nvidia;
#[cfg(feature = "rocm")]
mod rocm;
#[cfg(feature = "wgpu")]
mod wgpu;

use std::any::{Any, TypeId};

use burn::tensor::backend::Backend;

#[cfg(feature = "cuda")]
pub(super) use cuda::memory as cuda_memory;

use super::{DetectedDevice, DeviceKey, HardwareError, Platform, ProbeResult, Tier};

/// The platforms that compute on the processor, in the order of `auto`.
pub(super) const HOST_PLATFORMS: [&str; 3] = ["flex", "candle", "ndarray"];

/// What the interfaces of Burn's wgpu backend are called.
pub(super) const WGPU: [&str; 3] = ["metal", "vulkan", "webgpu"];

/// Work that runs on whichever backend a device belongs to.
pub trait Work {
    /// What it gives back.
    type Output;

    /// Runs on `device`, with a backend that does not differentiate; `Autodiff<B>` of it does.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;
}

/// Runs `work` on the device of a built-in platform, on the backend Burn has for it.
///
/// # Errors
/// [`HardwareError::Unavailable`] if the platform is not compiled in, or has no device of this
/// number.
pub fn run_on<W: Work>(key: &DeviceKey, work: W) -> Result<W::Output, HardwareError> {
    let index = key.index;
    let result = match key.platform.as_str() {
        #[cfg(feature = "flex")]
        "flex" => run::<burn::backend::Flex, W>(host::device(index), work),
        #[cfg(feature = "candle")]
        #[allow(deprecated)]
        "candle" => run::<burn::backend::Candle, W>(host::device(index), work),
        #[cfg(feature = "ndarray")]
        "ndarray" => run::<burn::backend::NdArray, W>(host::device(index), work),
        #[cfg(feature = "cuda")]
        "cuda" => run::<burn::backend::Cuda, W>(Ok(cuda::device(index)), work),
        #[cfg(feature = "rocm")]
        "rocm" => run::<burn::backend::Rocm, W>(Ok(rocm::device(index)), work),
        #[cfg(feature = "wgpu")]
        wgpu::NAME => run::<burn::backend::Wgpu, W>(wgpu::device(index), work),
        _ => Err("this program is built without a backend for it".to_owned()),
    };
    result.map_err(|reason| HardwareError::unavailable(key, reason))
}

/// The device of `key`, which is one of backend `B`.
///
/// # Errors
/// As [`run_on`], and where another backend is the one of this platform.
pub fn device_of<B: Backend>(key: &DeviceKey) -> Result<B::Device, HardwareError> {
    let found = run_on(key, Found)?.downcast::<B::Device>();
    found
        .map(|device| *device)
        .map_err(|_| HardwareError::unavailable(key, "it is a device of another backend"))
}

struct Found;

impl Work for Found {
    type Output = Box<dyn Any>;

    fn run<B: Backend>(self, device: B::Device) -> Box<dyn Any> {
        Box::new(device)
    }
}

fn run<B: Backend, W: Work>(
    device: Result<B::Device, String>,
    work: W,
) -> Result<W::Output, String> {
    Ok(work.run::<B>(device?))
}

/// Every built-in platform, those that are not compiled in with the reason as what they find.
pub(super) fn built_in() -> Vec<Box<dyn Platform>> {
    let all = ["cuda", "rocm", "metal", "vulkan", "webgpu", "flex", "candle", "ndarray"];
    all.map(platform).into()
}

fn platform(name: &'static str) -> Box<dyn Platform> {
    match name {
        #[cfg(feature = "cuda")]
        "cuda" => Box::new(cuda::Cuda),
        #[cfg(feature = "rocm")]
        "rocm" => Box::new(rocm::Rocm),
        #[cfg(feature = "wgpu")]
        wgpu::NAME => Box::new(wgpu::Wgpu),
        // Of the interfaces behind the feature `wgpu`, each system has one.
        #[cfg(feature = "wgpu")]
        _ if WGPU.contains(&name) => Box::new(Absent {
            name,
            reason: format!("Burn's wgpu backend goes through {} here", wgpu::NAME),
        }),
        #[cfg(feature = "flex")]
        "flex" => host::Host::<burn::backend::Flex>::named(name),
        #[cfg(feature = "candle")]
        #[allow(deprecated)]
        "candle" => host::Host::<burn::backend::Candle>::named(name),
        #[cfg(feature = "ndarray")]
        "ndarray" => host::Host::<burn::backend::NdArray>::named(name),
        _ => {
            let feature = if WGPU.contains(&name) { "wgpu" } else { name };
            let reason =
                format!("not compiled into this program; build it with --features {feature}");
            Box::new(Absent { name, reason })
        }
    }
}

/// A platform that cannot be here.
struct Absent {
    name: &'static str,
    reason: String,
}

impl Platform for Absent {
    fn name(&self) -> &str {
        self.name
    }

    fn tier(&self) -> Tier {
        match self.name {
            "cuda" => Tier::Cuda,
            "rocm" => Tier::Rocm,
            "metal" => Tier::Metal,
            name if HOST_PLATFORMS.contains(&name) => Tier::Cpu,
            _ => Tier::Gpu,
        }
    }

    fn is_built(&self) -> bool {
        false
    }

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        Err(self.reason.clone())
    }

    fn probe(&self, _: usize) -> Result<ProbeResult, String> {
        Err(self.reason.clone())
    }
}

/// The built-in platform whose devices are of type `D`.
#[allow(deprecated, reason = "Burn ends its Candle backend with 0.21")]
pub(super) fn name_for<D: Any>() -> Option<&'static str> {
    let table: &[(TypeId, &'static str)] = &[
        #[cfg(feature = "flex")]
        (TypeId::of::<burn::backend::flex::FlexDevice>(), "flex"),
        #[cfg(feature = "candle")]
        (TypeId::of::<burn::backend::candle::CandleDevice>(), "candle"),
        #[cfg(feature = "ndarray")]
        (TypeId::of::<burn::backend::ndarray::NdArrayDevice>(), "ndarray"),
        #[cfg(feature = "cuda")]
        (TypeId::of::<burn::backend::cuda::CudaDevice>(), "cuda"),
        #[cfg(feature = "rocm")]
        (TypeId::of::<burn::backend::rocm::RocmDevice>(), "rocm"),
        #[cfg(feature = "wgpu")]
        (TypeId::of::<burn::backend::wgpu::WgpuDevice>(), wgpu::NAME),
    ];
    table.iter().find(|(id, _)| *id == TypeId::of::<D>()).map(|(_, name)| *name)
}
