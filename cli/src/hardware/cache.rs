//! Calibrations of devices, kept from one run to the next in the user's folder for caches.

use std::collections::BTreeMap;
use std::fs;

use fewshot::files;
use fewshot::hardware::{Calibration, DeviceInfo};

use crate::prelude::*;

pub(super) fn get(device: &DeviceInfo) -> Option<Calibration> {
    read().remove(&key(device))
}

/// Keeps it, if the cache can be written.
pub(super) fn put(device: &DeviceInfo, calibration: &Calibration) {
    let Some(path) = path() else { return };
    let mut all = read();
    all.insert(key(device), calibration.clone());
    let text = serde_json::to_string_pretty(&all).expect("calibrations are plain data");
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    if let Err(error) = folder.and_then(|()| files::replace(&path, text.as_bytes())) {
        print_status(format_args!("calibration not kept in {}: {error}", path.display()));
    }
}

fn path() -> Option<PathBuf> {
    files::cache_folder().map(|folder| folder.join("calibration.json"))
}

/// Empty where there is no file that can be read.
fn read() -> BTreeMap<String, Calibration> {
    let text = path().and_then(|path| fs::read_to_string(path).ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Key of a calibration: device, driver, threads and version.
fn key(device: &DeviceInfo) -> String {
    format!(
        "{} | {} | {} | {} threads | {}",
        device.key,
        device.name,
        device.driver.as_deref().unwrap_or("-"),
        rayon::current_num_threads(),
        env!("CARGO_PKG_VERSION")
    )
}
