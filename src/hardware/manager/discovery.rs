use std::marker::PhantomData;

use burn::prelude::DeviceOps;
use burn::tensor::backend::{Backend, DeviceId};

use super::dispatch::device_of;
use crate::hardware::{
    DetectedDevice, Detection, DeviceClass, DeviceInfo, DevicePreference, HardwareError, Inventory,
    Platform, ProbeResult, Registry, Tier, platforms,
};

/// The platform of a backend that is not one of Burn's.
const OWN: &str = "own";

/// Devices for a backend: those of its platform, or, of a backend that is not Burn's,
/// those that it names itself. Others are looked at where one is asked for, to say why it will not do.
pub(super) fn inventory<B: Backend>(preference: &DevicePreference) -> Inventory {
    let Some(name) = platforms::name_for::<B::Device>() else {
        return Registry::empty()
            .with(CustomBackend::<B>(PhantomData))
            .detect(&Detection::default());
    };
    let accelerators =
        *preference == DevicePreference::Gpu && platforms::HOST_PLATFORMS.contains(&name);
    let mut only = preference.platforms();
    if !accelerators && !only.iter().any(|other| other == name) {
        only.push(name.to_owned());
    }
    let mut inventory = Registry::built_in().detect(&Detection { only, ..Detection::default() });
    for other in inventory.devices.extract_if(.., |info| info.key.platform != name) {
        inventory.rejected.push(other.rejected("it is of another backend than this program's"));
    }
    inventory
}

/// The device of `B` of which this is known.
pub(super) fn device<B: Backend>(info: &DeviceInfo) -> Result<B::Device, HardwareError> {
    let key = &info.key;
    match key.platform == OWN {
        true => numbered::<B>(key.index).map_err(|error| HardwareError::unavailable(key, error)),
        false => device_of::<B>(info),
    }
}

fn numbered<B: Backend>(index: usize) -> Result<B::Device, String> {
    let id = u16::try_from(index).map_err(|error| format!("device {index}: {error}"))?;
    Ok(B::Device::from_id(DeviceId::new(0, id)))
}

/// The devices of a backend that is not one of Burn's, as it tells itself.
pub(super) struct CustomBackend<B>(pub(super) PhantomData<fn() -> B>);

impl<B: Backend> Platform for CustomBackend<B> {
    fn name(&self) -> &str {
        OWN
    }

    /// Nothing tells what it computes on: not the processor, as far as promises go.
    fn tier(&self) -> Tier {
        Tier::Gpu
    }

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        let detected = |index| {
            let name = B::name(&numbered::<B>(index)?);
            Ok(DetectedDevice::new(name, DeviceClass::Other, self.tier()))
        };
        (0..B::device_count(0)).map(detected).collect()
    }

    fn probe(&self, index: usize) -> Result<ProbeResult, String> {
        ProbeResult::of::<B>(&numbered::<B>(index)?)
    }
}
