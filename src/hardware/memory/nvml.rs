use std::sync::OnceLock;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::visible::{Visible, visible};
use crate::hardware::Bytes;

/// Total and free memory of a CUDA device by its number in this process.
pub(super) fn memory(index: usize) -> Result<(Bytes, Bytes), String> {
    let memory = device(nvml()?, index)?.memory_info().map_err(|error| error.to_string())?;
    Ok((Bytes(memory.total), Bytes(memory.free)))
}

fn nvml() -> Result<&'static Nvml, String> {
    static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let nvml = NVML.get_or_init(|| Nvml::init().map_err(|error| error.to_string()));
    nvml.as_ref().map_err(String::clone)
}

fn device(nvml: &Nvml, index: usize) -> Result<Device<'_>, String> {
    let text = |error: NvmlError| error.to_string();
    let setting = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match visible(index, setting.as_deref())? {
        Visible::Number(number) => {
            same_order(nvml)?;
            nvml.device_by_index(number).map_err(text)
        }
        Visible::Name(start) => {
            let count = nvml.device_count().map_err(text)?;
            let devices = (0..count).filter_map(|number| nvml.device_by_index(number).ok());
            let named = |device: &Device| device.uuid().is_ok_and(|uuid| uuid.starts_with(&start));
            // Parts of a GPU (MIG) are known by their full name alone.
            let found = devices.into_iter().find(named);
            found.map_or_else(|| nvml.device_by_uuid(start.as_str()).map_err(text), Ok)
        }
    }
}

/// NVML counts devices by their place on the bus; CUDA puts the fastest first unless told not to.
fn same_order(nvml: &Nvml) -> Result<(), String> {
    if std::env::var("CUDA_DEVICE_ORDER").is_ok_and(|order| order == "PCI_BUS_ID") {
        return Ok(());
    }
    let count = nvml.device_count().map_err(|error| error.to_string())?;
    let name = |number| nvml.device_by_index(number).and_then(|device| device.name());
    let names: Result<Vec<_>, _> = (0..count).map(name).collect();
    let names = names.map_err(|error| error.to_string())?;
    if names.iter().all(|name| *name == names[0]) {
        return Ok(());
    }
    Err(format!("the GPUs differ ({}), set CUDA_DEVICE_ORDER=PCI_BUS_ID", names.join(", ")))
}
