use std::env;

use burn::backend::Wgpu as WgpuBackend;
use burn::backend::wgpu::WgpuDevice;
use cubecl::wgpu::WgpuRuntime;
use wgpu::{AdapterInfo, Backend, DeviceType, Instance, InstanceDescriptor};

use super::cube;
use crate::hardware::{DetectedDevice, DeviceClass, DeviceMemory, Platform, ProbeResult, Tier};

/// The interface that Burn's wgpu backend goes through on this system.
pub(in crate::hardware) const NAME: &str = match API {
    Backend::Metal => "metal",
    Backend::BrowserWebGpu => "webgpu",
    _ => "vulkan",
};

const API: Backend = if cfg!(target_family = "wasm") {
    Backend::BrowserWebGpu
} else if cfg!(target_os = "macos") {
    Backend::Metal
} else {
    Backend::Vulkan
};

/// A variable of CubeCL's that names the adapter to take when none is asked for.
const DEFAULT: &str = "CUBECL_WGPU_DEFAULT_DEVICE";

/// Graphics adapters, software renderers among them.
pub(super) struct Wgpu;

/// The device with this number among all adapters.
pub(in crate::hardware) fn device(index: usize) -> Result<WgpuDevice, String> {
    let adapters = adapters()?;
    let known = adapters.len();
    let adapter = adapters.into_iter().nth(index);
    adapter.ok_or_else(|| format!("there are {known} adapters, numbered from 0"))?.1
}

impl Platform for Wgpu {
    fn name(&self) -> &str {
        NAME
    }

    fn tier(&self) -> Tier {
        if API == Backend::Metal { Tier::Metal } else { Tier::Gpu }
    }

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        // An adapter's name there is what Burn's device is printed as.
        let default = env::var(DEFAULT).ok();
        let known = adapters()?.into_iter().map(|(info, device)| {
            (info, device.map_or_else(|_| String::new(), |device| format!("{device:?}")))
        });
        let known = known.collect::<Vec<_>>();
        if let Some(default) = &default
            && !known.iter().any(|(_, name)| name == default)
        {
            let names = known.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>();
            let names = names.join(", ");
            return Err(format!("{DEFAULT}={default:?} is no adapter; there is: {names}"));
        }
        let skipped = |name: &String| {
            let default = default.as_ref().filter(|default| *default != name)?;
            Some(format!("{DEFAULT} names {default}"))
        };
        let devices = known
            .iter()
            .map(|(info, name)| DetectedDevice { skipped: skipped(name), ..detected(info) });
        Ok(devices.collect())
    }

    fn probe(&self, index: usize) -> Result<ProbeResult, String> {
        let device = device(index)?;
        let tried = cube::probe::<WgpuRuntime, WgpuBackend>(&device)?;
        let unified = match device {
            WgpuDevice::DiscreteGpu(_) => Some(false),
            WgpuDevice::IntegratedGpu(_) | WgpuDevice::Cpu => Some(true),
            _ => None,
        };
        Ok(ProbeResult { memory: DeviceMemory { unified, ..tried.memory }, ..tried })
    }
}

fn detected(info: &AdapterInfo) -> DetectedDevice {
    let class = match info.device_type {
        DeviceType::DiscreteGpu => DeviceClass::DiscreteGpu,
        DeviceType::IntegratedGpu => DeviceClass::IntegratedGpu,
        DeviceType::VirtualGpu => DeviceClass::VirtualGpu,
        DeviceType::Cpu => DeviceClass::Software,
        DeviceType::Other => DeviceClass::Other,
    };
    let tier = match (class, API) {
        (DeviceClass::Software, _) => Tier::Software,
        (_, Backend::Metal) => Tier::Metal,
        _ => Tier::Gpu,
    };
    let driver = format!("{} {}", info.driver, info.driver_info).trim().to_owned();
    let driver = (!driver.is_empty()).then_some(driver);
    DetectedDevice { driver, ..DetectedDevice::new(&info.name, class, tier) }
}

/// An adapter, and what Burn calls it or why it cannot be reached.
type Adapter = (AdapterInfo, Result<WgpuDevice, String>);

/// Every adapter of the interface.
fn adapters() -> Result<Vec<Adapter>, String> {
    let instance = Instance::new(InstanceDescriptor {
        backends: API.into(),
        ..InstanceDescriptor::new_without_display_handle()
    });
    let adapters = pollster::block_on(instance.enumerate_adapters(API.into()));
    if adapters.is_empty() {
        return Err(format!("no adapter: no {NAME} driver is installed, or it has no device"));
    }
    let infos = adapters.iter().map(wgpu::Adapter::get_info).collect::<Vec<_>>();
    let types = infos.iter().map(|info| info.device_type).collect::<Vec<_>>();
    let devices = (0..types.len()).map(|index| burn_device(&types, index)).collect::<Vec<_>>();
    Ok(infos.into_iter().zip(devices).collect())
}

/// Burn's device of the adapter at `index` among adapters of these types: Burn counts each type apart.
fn burn_device(types: &[DeviceType], index: usize) -> Result<WgpuDevice, String> {
    let of_type = |kind| types.iter().filter(|other| **other == kind).count();
    let before = types[..index].iter().filter(|kind| **kind == types[index]).count();
    match types[index] {
        DeviceType::DiscreteGpu => Ok(WgpuDevice::DiscreteGpu(before)),
        DeviceType::IntegratedGpu => Ok(WgpuDevice::IntegratedGpu(before)),
        DeviceType::VirtualGpu => Ok(WgpuDevice::VirtualGpu(before)),
        DeviceType::Cpu if before == 0 => Ok(WgpuDevice::Cpu),
        DeviceType::Cpu => Err("Burn reaches the first software renderer alone".to_owned()),
        // CubeCL takes these where a type has no adapter of that number.
        DeviceType::Other if of_type(DeviceType::VirtualGpu) <= before => {
            Ok(WgpuDevice::VirtualGpu(before))
        }
        DeviceType::Other => Err("Burn cannot reach an adapter of an unknown type".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_counted_by_type_as_burn_does() {
        use DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other};
        let types = [IntegratedGpu, DiscreteGpu, Cpu, DiscreteGpu, Cpu, Other];
        let devices = (0..types.len()).map(|index| burn_device(&types, index));
        let devices = devices.collect::<Vec<_>>();
        assert_eq!(devices[0], Ok(WgpuDevice::IntegratedGpu(0)));
        assert_eq!(devices[1], Ok(WgpuDevice::DiscreteGpu(0)));
        assert_eq!(devices[2], Ok(WgpuDevice::Cpu));
        assert_eq!(devices[3], Ok(WgpuDevice::DiscreteGpu(1)));
        assert!(devices[4].is_err());
        assert_eq!(devices[5], Ok(WgpuDevice::VirtualGpu(0)));
    }
}
