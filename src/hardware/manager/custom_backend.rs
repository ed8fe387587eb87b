use std::marker::PhantomData;

use burn::prelude::DeviceOps;
use burn::tensor::backend::{Backend, DeviceId};

use crate::hardware::{
    Capabilities, DeviceClass, DeviceMemory, Found, Platform, Probed, Tier, probe,
};

/// The platform's name.
pub(super) const NAME: &str = "own";

/// The devices of a backend that is not one of Burn's, as it tells itself.
pub(super) struct CustomBackend<B>(PhantomData<fn() -> B>);

impl<B: Backend> CustomBackend<B> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

/// The device with this number.
pub(super) fn device<B: Backend>(index: usize) -> Result<B::Device, String> {
    let id = u16::try_from(index).map_err(|error| format!("device {index}: {error}"))?;
    Ok(B::Device::from_id(DeviceId::new(0, id)))
}

impl<B: Backend> Platform for CustomBackend<B> {
    fn name(&self) -> &str {
        NAME
    }

    /// Nothing tells what it computes on: not the processor, as far as promises go.
    fn tier(&self) -> Tier {
        Tier::Gpu
    }

    fn find(&self) -> Result<Vec<Found>, String> {
        let found = (0..B::device_count(0)).map(|index| {
            Ok(Found {
                name: B::name(&device::<B>(index)?),
                class: DeviceClass::Other,
                tier: self.tier(),
                driver: None,
                passed_over: None,
            })
        });
        found.collect()
    }

    fn probe(&self, index: usize) -> Result<Probed, String> {
        let device = device::<B>(index)?;
        probe::compute::<B>(&device)?;
        Ok(Probed { capabilities: Capabilities::of::<B>(&device), memory: DeviceMemory::default() })
    }
}
