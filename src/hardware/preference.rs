use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::platforms::{HOST_PLATFORMS, WGPU};
use super::{DeviceInfo, DeviceKey, HardwareError, Inventory, Rejection, Tier};

/// Preferred device: `auto`, a kind (`gpu`, `cpu`), a platform (`cuda`, `wgpu` for whichever of
/// `metal`, `vulkan` and `webgpu` the system has) or one device (`cuda:1`). Serialised as that text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum DevicePreference {
    /// The best there is.
    #[default]
    Auto,
    /// The best accelerator.
    Gpu,
    /// The best backend of the processor.
    Cpu,
    /// The best device of a platform.
    Platform(String),
    /// This one.
    Device(DeviceKey),
}

/// A device, and why it is that one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The device.
    pub device: DeviceInfo,
    /// The devices that `auto` would have preferred, and why it could not take them.
    pub skipped: Vec<Rejection>,
}

/// Preferences beside platforms.
const KINDS: [&str; 3] = ["auto", "gpu", "cpu"];

impl fmt::Display for DevicePreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Gpu => f.pad("gpu"),
            Self::Cpu => f.pad("cpu"),
            Self::Platform(name) => f.pad(name),
            Self::Device(key) => key.fmt(f),
        }
    }
}

impl FromStr for DevicePreference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "gpu" => Ok(Self::Gpu),
            "cpu" => Ok(Self::Cpu),
            _ => {
                let key = text.parse::<DeviceKey>()?;
                Ok(if text.contains(':') {
                    Self::Device(key)
                } else {
                    Self::Platform(key.platform)
                })
            }
        }
    }
}

impl Serialize for DevicePreference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DevicePreference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl DevicePreference {
    pub(super) fn matches(&self, device: &DeviceInfo) -> bool {
        self.wants(&device.key.platform, device.tier, Some(device.key.index))
    }

    /// True if a rejected device would have met the preference, or is of a platform that does.
    fn missed(&self, rejection: &Rejection) -> bool {
        self.wants(rejection.platform(), rejection.tier, None)
    }

    fn wants(&self, platform: &str, tier: Tier, index: Option<usize>) -> bool {
        match self {
            Self::Auto => true,
            Self::Gpu => tier.is_accelerator(),
            Self::Cpu => tier == Tier::Cpu,
            Self::Platform(name) => is_of(platform, name),
            Self::Device(key) => {
                is_of(platform, &key.platform) && index.is_none_or(|index| index == key.index)
            }
        }
    }

    fn platform(&self) -> Option<&str> {
        match self {
            Self::Platform(name) => Some(name),
            Self::Device(key) => Some(&key.platform),
            _ => None,
        }
    }

    /// The platforms worth trying for it: none named means all of them.
    pub fn platforms(&self) -> Vec<String> {
        match self.platform() {
            Some("wgpu") => WGPU.map(str::to_owned).to_vec(),
            Some(name) => vec![name.to_owned()],
            None if *self == Self::Cpu => HOST_PLATFORMS.map(str::to_owned).to_vec(),
            None => Vec::new(),
        }
    }
}

fn is_of(platform: &str, name: &str) -> bool {
    platform == name || (name == "wgpu" && WGPU.contains(&platform))
}

impl Inventory {
    /// The device that is wanted. `auto` takes the best that works and says what it skipped;
    /// anything else is that or an error.
    ///
    /// # Errors
    /// [`HardwareError::Unknown`] for a platform that nobody knows, [`HardwareError::Unavailable`]
    /// for what is not there or does not work, with what does.
    pub fn select(&self, preference: &DevicePreference) -> Result<Selection, HardwareError> {
        let explicit = matches!(preference, DevicePreference::Device(_));
        let mut skipped = Vec::new();
        for device in self.devices.iter().filter(|device| preference.matches(device)) {
            match &device.skipped {
                Some(reason) if !explicit => skipped.push(device.rejected(reason)),
                _ => {
                    if !explicit {
                        skipped.extend(self.better_than(device, preference));
                    }
                    return Ok(Selection { device: device.clone(), skipped });
                }
            }
        }
        Err(self.unavailable(preference))
    }

    /// Rejected devices that, had they worked, would have been taken before `device`.
    fn better_than(&self, device: &DeviceInfo, preference: &DevicePreference) -> Vec<Rejection> {
        let before = |rejection: &&Rejection| {
            let same = rejection.platform() == device.key.platform;
            rejection.tier < device.tier || (same && rejection.index() < Some(device.key.index))
        };
        let missed = self.rejected.iter().filter(|rejection| preference.missed(rejection));
        missed.filter(before).cloned().collect()
    }

    fn unavailable(&self, preference: &DevicePreference) -> HardwareError {
        let platforms = || {
            let devices = self.devices.iter().map(|device| device.key.platform.as_str());
            devices.chain(self.rejected.iter().map(Rejection::platform))
        };
        if let Some(platform) = preference.platform()
            && !platforms().any(|name| is_of(name, platform))
        {
            let mut known = KINDS.into_iter().chain(platforms()).collect::<Vec<_>>();
            known.dedup();
            if known.iter().any(|name| WGPU.contains(name)) {
                known.push("wgpu");
            }
            return HardwareError::unknown("platform", platform, known);
        }
        let missed = self.rejected.iter().filter(|rejection| preference.missed(rejection));
        let missed = missed.collect::<Vec<_>>();
        let reasons = missed.iter().map(|missed| format!("{}: {}", missed.what, missed.reason));
        let mut reason = reasons.collect::<Vec<_>>().join("; ");
        if missed.is_empty() {
            reason = "there is none".to_owned();
        }
        if let DevicePreference::Device(key) = preference {
            let names = self.devices.iter().map(|device| &device.key.platform);
            let there = names.filter(|name| is_of(name, &key.platform)).count();
            if let Some(itself) = missed.iter().find(|it| it.index() == Some(key.index)) {
                reason.clone_from(&itself.reason);
            } else if there > 0 {
                let plural = if there == 1 { "device" } else { "devices" };
                reason = format!("{} has {there} {plural}, numbered from 0", key.platform);
            }
        }
        HardwareError::Unavailable { device: preference.to_string(), reason, usable: self.keys() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::fixtures::inventory;

    fn select(machine: &str, preference: &str) -> Result<Selection, HardwareError> {
        inventory(machine).select(&preference.parse().unwrap())
    }

    fn chosen(machine: &str, preference: &str) -> String {
        select(machine, preference).unwrap().device.key.to_string()
    }

    #[test]
    fn the_best_device_comes_first() {
        assert_eq!(chosen("8xh200", "auto"), "cuda:0");
        assert_eq!(chosen("m3_max", "auto"), "metal:0");
        assert_eq!(chosen("amd_laptop", "auto"), "vulkan:0");
        let amd = inventory("amd_laptop").devices;
        let order = amd.iter().map(|device| device.key.to_string()).collect::<Vec<_>>();
        assert_eq!(order, ["vulkan:0", "flex:0", "ndarray:0", "vulkan:1"]);
    }

    #[test]
    fn kinds_platforms_and_devices_can_be_asked_for() {
        assert_eq!(chosen("8xh200", "cuda:7"), "cuda:7");
        assert_eq!(chosen("8xh200", "cpu"), "flex:0");
        assert_eq!(chosen("amd_laptop", "gpu"), "vulkan:0");
        assert_eq!(chosen("amd_laptop", "wgpu"), "vulkan:0");
        assert_eq!(chosen("amd_laptop", "wgpu:1"), "vulkan:1");
        assert_eq!(chosen("m3_max", "wgpu"), "metal:0");
    }

    #[test]
    fn auto_says_what_it_skipped_and_nothing_else_does() {
        let skipped = select("amd_laptop", "auto").unwrap().skipped;
        assert!(skipped.iter().any(|rejection| rejection.what == "rocm:0"));
        assert!(select("amd_laptop", "flex").unwrap().skipped.is_empty());
        assert!(select("8xh200", "auto").unwrap().skipped.is_empty());
        assert!(select("m3_max", "metal").unwrap().skipped.is_empty());
        let mut sick = inventory("8xh200");
        sick.devices.remove(0);
        sick.rejected.push(Rejection {
            what: "cuda:0".to_owned(),
            tier: Tier::Cuda,
            tried: true,
            reason: "NVIDIA H200: fell off the bus".to_owned(),
        });
        for wanted in [DevicePreference::Auto, DevicePreference::Platform("cuda".to_owned())] {
            let selection = sick.select(&wanted).unwrap();
            assert_eq!(selection.device.key.to_string(), "cuda:1");
            assert_eq!(selection.skipped[0].what, "cuda:0");
        }
        let refused = sick.select(&"cuda:0".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.starts_with("cuda:0 cannot be used: NVIDIA H200: fell off the bus"));
    }

    #[test]
    fn what_was_asked_for_is_never_replaced() {
        let text = |machine, wanted| select(machine, wanted).unwrap_err().to_string();
        let absent = text("m3_max", "cuda");
        assert!(absent.starts_with("cuda cannot be used: cuda: the driver's library"), "{absent}");
        assert!(absent.ends_with("Usable: metal:0, flex:0, ndarray:0"), "{absent}");
        assert!(text("8xh200", "cuda:8").contains("cuda has 8 devices, numbered from 0"));
        assert!(text("amd_laptop", "rocm:0").contains("hipErrorNoBinaryForGpu"));
        for (wrong, meant) in [
            ("cudda", "cuda"),
            ("cudda:1", "cuda"),
            ("gpuu", "gpu"),
            ("atuo", "auto"),
            ("cpus", "cpu"),
        ] {
            let wrong = text("8xh200", wrong);
            assert!(wrong.contains(&format!("; did you mean {meant:?}?")), "{wrong}");
        }
        assert!(text("amd_laptop", "wpgu").contains("did you mean \"wgpu\"?"));
        let cpu_only = Inventory::new(inventory("m3_max").devices.split_off(1), Vec::new());
        let none = cpu_only.select(&DevicePreference::Gpu).unwrap_err().to_string();
        assert_eq!(none, "gpu cannot be used: there is none. Usable: flex:0, ndarray:0");
    }

    #[test]
    fn a_device_the_environment_speaks_against_is_taken_only_by_its_number() {
        let mut laptop = inventory("amd_laptop");
        laptop.devices[0].skipped = Some("CUBECL_WGPU_DEFAULT_DEVICE names Cpu".to_owned());
        let chosen = |text: &str| laptop.select(&text.parse().unwrap()).unwrap();
        assert_eq!(chosen("wgpu").device.key.to_string(), "vulkan:1");
        assert_eq!(chosen("vulkan:0").device.key.to_string(), "vulkan:0");
        let auto = chosen("auto");
        assert_eq!(auto.device.key.to_string(), "flex:0");
        assert!(auto.skipped[0].reason.contains("CUBECL_WGPU_DEFAULT_DEVICE"));
    }

    #[test]
    fn a_preference_reads_back_from_its_text() {
        for text in ["auto", "gpu", "cpu", "cuda", "vulkan:1"] {
            assert_eq!(text.parse::<DevicePreference>().unwrap().to_string(), text);
        }
        for wrong in ["", "cuda:", "cuda:x", "a b"] {
            assert!(wrong.parse::<DevicePreference>().is_err(), "{wrong}");
        }
    }
}
