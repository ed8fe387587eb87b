use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fewshot::files;
use fewshot::hardware::{Calibration, DeviceInfo};

use crate::cli::output::print_status;

/// What was measured of devices, kept from one run to the next.
pub(super) struct Cache {
    path: Option<PathBuf>,
}

type Found = BTreeMap<String, Calibration>;

impl Cache {
    /// In the user's folder for caches, or nowhere if there is none.
    pub(super) fn open() -> Self {
        Self { path: files::cache_folder().map(|folder| folder.join("calibration.json")) }
    }

    pub(super) fn get(&self, device: &DeviceInfo) -> Option<Calibration> {
        self.read().remove(&key(device))
    }

    /// Keeps it; what cannot be kept is measured again.
    pub(super) fn put(&self, device: &DeviceInfo, found: &Calibration) {
        let Some(path) = &self.path else { return };
        let mut all = self.read();
        all.insert(key(device), found.clone());
        let text = serde_json::to_string_pretty(&all).expect("calibrations are plain data");
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = folder.and_then(|()| files::replace(path, text.as_bytes())) {
            print_status(format_args!("calibration not kept in {}: {error}", path.display()));
        }
    }

    /// What is there; a file that cannot be read holds nothing.
    fn read(&self) -> Found {
        let text = self.path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}

/// What a calibration is true of: device, driver, threads and version.
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
