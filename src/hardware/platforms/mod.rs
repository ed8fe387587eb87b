//! The platforms that Burn has backends for.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod host;
#[cfg(any(feature = "cuda", test))]
mod nvidia;
#[cfg(feature = "rocm")]
pub(super) mod rocm;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;

use std::any::{Any, TypeId};

use super::{DetectedDevice, Platform, ProbeResult, Tier};

/// The platforms that compute on the processor, in the order of `auto`.
pub(super) const HOST_PLATFORMS: [&str; 3] = ["flex", "candle", "ndarray"];

/// Names of the interfaces of Burn's wgpu backend.
pub(super) const WGPU: [&str; 3] = ["metal", "vulkan", "webgpu"];

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
