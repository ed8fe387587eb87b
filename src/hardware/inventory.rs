use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{DeviceInfo, DeviceKey, HardwareError, Tier};

/// The devices of a machine, best first, and why others are not among them.
///
/// It is plain data: one written on another machine serves to plan for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Version of the format.
    version: u32,
    /// Usable devices, in the order in which `auto` takes them.
    pub devices: Vec<DeviceInfo>,
    /// Devices and platforms that cannot be used.
    pub rejected: Vec<Rejection>,
}

/// A platform or device that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// Name of the platform, or key of the device.
    pub what: String,
    /// Where `auto` would have placed it.
    pub tier: Tier,
    /// True if it was looked for: a platform that is not compiled in, or is of another system, was
    /// not.
    pub tried: bool,
    /// Why.
    pub reason: String,
}

impl Rejection {
    /// The platform's name.
    pub fn platform(&self) -> &str {
        self.what.split(':').next().unwrap_or(&self.what)
    }

    /// The device's number, if it is a device.
    pub(super) fn index(&self) -> Option<usize> {
        self.what.split_once(':')?.1.parse().ok()
    }
}

const VERSION: u32 = 1;

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Inventory {
    /// Devices in the order of `auto`: by tier, then as they are given.
    pub fn new(mut devices: Vec<DeviceInfo>, rejected: Vec<Rejection>) -> Self {
        devices.sort_by_key(|device| device.tier);
        Self { version: VERSION, devices, rejected }
    }

    /// Keys of the usable devices.
    pub(super) fn keys(&self) -> Vec<DeviceKey> {
        self.devices.iter().map(|device| device.key.clone()).collect()
    }

    /// Reads one that was written as JSON.
    ///
    /// # Errors
    /// [`HardwareError::Inventory`] if the file cannot be read, is of another version, or is not an
    /// inventory.
    pub fn read(path: &Path) -> Result<Self, HardwareError> {
        let wrong = |reason| HardwareError::Inventory { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Checks that nothing in it misleads: a file may come from anywhere.
    fn check(&self) -> Result<(), String> {
        let mut keys = HashSet::new();
        for device in &self.devices {
            let key = &device.key;
            if !keys.insert(key) {
                return Err(format!("malformed: there are two devices {key}"));
            }
            if device.memory.free > device.memory.total && device.memory.total.is_some() {
                return Err(format!("malformed: {key} has more memory free than it has"));
            }
        }
        let names = self.devices.iter().map(|device| &device.name);
        let rejections = self.rejected.iter().flat_map(|r| [&r.what, &r.reason]);
        match names.chain(rejections).find(|text| text.chars().any(char::is_control)) {
            Some(text) => Err(format!("malformed: control characters in {text:?}")),
            None => Ok(()),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let version = serde_json::from_str::<Versioned>(text);
        let version = version.map_err(|error| format!("not an inventory: {error}"))?.version;
        if version != VERSION {
            return Err(format!(
                "it has version {version} of the format, this program reads version {VERSION}; \
                 write it again with `fewshot hardware list --json`"
            ));
        }
        let read = serde_json::from_str::<Self>(text);
        let read = read.map_err(|error| format!("malformed: {error}"))?;
        read.check()?;
        Ok(Self::new(read.devices, read.rejected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::fixtures;

    #[test]
    fn an_inventory_reads_back() {
        for name in ["8xh200", "m3_max", "amd_laptop"] {
            let inventory = fixtures::inventory(name);
            let text = serde_json::to_string(&inventory).unwrap();
            assert_eq!(Inventory::parse(&text), Ok(inventory));
        }
    }

    #[test]
    fn an_inventory_with_the_old_name_of_skipped_is_read() {
        let mut inventory = fixtures::inventory("amd_laptop");
        inventory.devices[0].skipped = Some("CUBECL_WGPU_DEFAULT_DEVICE names Cpu".to_owned());
        let text = serde_json::to_string(&inventory).unwrap();
        let old = text.replace("\"skipped\":", "\"passed_over\":");
        assert_ne!(old, text);
        assert_eq!(Inventory::parse(&old), Ok(inventory));
    }

    #[test]
    fn a_file_that_is_no_inventory_is_told_apart_from_an_old_one() {
        let text = fs::read_to_string(fixtures::path("m3_max")).unwrap();
        let old = text.replacen("\"version\": 1", "\"version\": 0", 1);
        assert!(Inventory::parse(&old).unwrap_err().contains("version 0 of the format"));
        assert!(Inventory::parse("{}").unwrap_err().contains("not an inventory"));
        let cut = &text[..text.len() / 2];
        assert!(Inventory::parse(cut).unwrap_err().contains("not an inventory"));
        let bent = text.replacen("\"tier\": \"metal\"", "\"tier\": \"best\"", 1);
        assert!(Inventory::parse(&bent).unwrap_err().contains("malformed"));
        let twice = text.replacen("\"ndarray:0\"", "\"flex:0\"", 1);
        assert!(Inventory::parse(&twice).unwrap_err().contains("two devices flex:0"));
        let escape = text.replacen("Apple M3 Max", "Apple\\u001b[2J", 1);
        assert!(Inventory::parse(&escape).unwrap_err().contains("control characters"));
        let missing = Inventory::read(Path::new("no/such.json")).unwrap_err().to_string();
        assert!(missing.starts_with("inventory no/such.json: "), "{missing}");
    }
}
