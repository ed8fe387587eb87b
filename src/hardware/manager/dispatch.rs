use std::any::Any;

use burn::tensor::backend::Backend;

use super::HardwareManager;
use crate::hardware::platforms;
use crate::hardware::{DeviceInfo, DeviceKey, HardwareError, Tier, guarded};

/// Work on the devices of whichever backend they belong to.
pub trait Work {
    /// The result of the work.
    type Output;

    /// Runs on the devices of `hardware`, with a backend that does not differentiate; `Autodiff<B>` of it does.
    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Self::Output;
}

/// Runs `work` on devices of one built-in platform, on the backend that Burn has for it. The first device leads.
///
/// # Errors
/// [`HardwareError::Unavailable`] if the platform is not compiled in, has no device of such a number, or is not the
/// same for all devices; [`HardwareError::Config`] without any device. An accelerator that fails is an error as of
/// [`guarded`]; a panic on the processor stays one.
pub fn run_on<W: Work>(devices: Vec<DeviceInfo>, work: W) -> Result<W::Output, HardwareError> {
    let Some(DeviceInfo { key, .. }) = devices.first() else {
        return Err(HardwareError::config("devices", "at least one device is needed"));
    };
    match key.platform.as_str() {
        #[cfg(feature = "flex")]
        "flex" => run::<burn::backend::Flex, W>(devices, platforms::host::device, work),
        #[cfg(feature = "candle")]
        #[allow(deprecated, reason = "Burn ends its Candle backend with 0.21")]
        "candle" => run::<burn::backend::Candle, W>(devices, platforms::host::device, work),
        #[cfg(feature = "ndarray")]
        "ndarray" => run::<burn::backend::NdArray, W>(devices, platforms::host::device, work),
        #[cfg(feature = "cuda")]
        "cuda" => {
            run::<burn::backend::Cuda, W>(devices, |at| Ok(platforms::cuda::device(at)), work)
        }
        #[cfg(feature = "rocm")]
        "rocm" => {
            run::<burn::backend::Rocm, W>(devices, |at| Ok(platforms::rocm::device(at)), work)
        }
        #[cfg(feature = "wgpu")]
        platforms::wgpu::NAME => {
            run::<burn::backend::Wgpu, W>(devices, platforms::wgpu::device, work)
        }
        _ => Err(HardwareError::unavailable(key, "this program is built without a backend for it")),
    }
}

fn run<B: Backend, W: Work>(
    infos: Vec<DeviceInfo>,
    device: fn(usize) -> Result<B::Device, String>,
    work: W,
) -> Result<W::Output, HardwareError> {
    let platform = infos[0].key.platform.clone();
    let opened = |info: DeviceInfo| match info.key.platform == platform {
        true => match device(info.key.index) {
            Ok(device) => Ok((info, device)),
            Err(reason) => Err(HardwareError::unavailable(&info.key, reason)),
        },
        false => Err(HardwareError::unavailable(&info.key, "it is a device of another backend")),
    };
    let devices = infos.into_iter().map(opened).collect::<Result<Vec<_>, _>>()?;
    let hardware = HardwareManager::<B>::new(devices);
    if hardware.info().tier == Tier::Cpu {
        // A panic on the processor is a mistake of the program, whose trace tells where.
        return Ok(work.run(hardware));
    }
    guarded::<B, _>(&hardware.device().clone(), || work.run(hardware))
}

/// A device of a built-in platform, which is that of backend `B`.
pub(super) fn device_of<B: Backend>(info: &DeviceInfo) -> Result<B::Device, HardwareError> {
    let device = run_on(vec![info.clone()], FirstDevice)?.downcast::<B::Device>();
    let other =
        |key: &DeviceKey| HardwareError::unavailable(key, "it is a device of another backend");
    device.map(|device| *device).map_err(|_| other(&info.key))
}

struct FirstDevice;

impl Work for FirstDevice {
    type Output = Box<dyn Any>;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Box<dyn Any> {
        Box::new(hardware.device().clone())
    }
}
