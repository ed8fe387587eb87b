use burn::tensor::backend::Backend;

use super::custom_backend::{self, CustomBackend};
use crate::hardware::{
    Detection, DeviceKey, DevicePreference, HardwareError, Inventory, Registry, Rejection,
    platforms,
};

const ANOTHER_BACKEND: &str = "it is of another backend than this program's";

/// What is there for a backend: the devices of its platform, or, of a backend that is not Burn's,
/// what it says itself. Others are looked at where one is asked for, to say why it will not do.
pub(super) fn inventory<B: Backend>(preference: &DevicePreference) -> Inventory {
    let Some(name) = platforms::name_for::<B::Device>() else {
        return Registry::empty().with(CustomBackend::<B>::new()).detect(&Detection::default());
    };
    let accelerators =
        *preference == DevicePreference::Gpu && platforms::HOST_PLATFORMS.contains(&name);
    let mut only = preference.platforms();
    if !accelerators && !only.iter().any(|other| other == name) {
        only.push(name.to_owned());
    }
    of_platform(Registry::built_in().detect(&Detection { only, ..Detection::default() }), name)
}

/// The devices of a platform; those of others that were asked for are refused.
fn of_platform(found: Inventory, platform: &str) -> Inventory {
    let mut rejected = found.rejected;
    let devices = found.devices.into_iter();
    let (own, others): (Vec<_>, Vec<_>) = devices.partition(|info| info.key.platform == platform);
    rejected.extend(others.into_iter().map(|info| Rejection {
        what: info.key.to_string(),
        tier: info.tier,
        tried: true,
        reason: ANOTHER_BACKEND.to_owned(),
    }));
    Inventory::new(own, rejected)
}

/// The device of `B` with this key.
pub(super) fn device<B: Backend>(key: &DeviceKey) -> Result<B::Device, HardwareError> {
    if key.platform != custom_backend::NAME {
        return platforms::device_of::<B>(key);
    }
    custom_backend::device::<B>(key.index).map_err(|reason| HardwareError::Unavailable {
        device: key.to_string(),
        reason,
        usable: Vec::new(),
    })
}
