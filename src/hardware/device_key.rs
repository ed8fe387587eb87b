use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A device by its platform and its number there, written `cuda:0`. Serialised as that text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey {
    /// `cuda`, `rocm`, `metal`, `vulkan`, `webgpu`, `flex`, `ndarray`, `candle`, or a name of a
    /// platform of one's own.
    pub platform: String,
    /// Its place among the platform's devices, from 0.
    pub index: usize,
}

impl DeviceKey {
    /// The device of `platform` with this number.
    pub fn new(platform: impl Into<String>, index: usize) -> Self {
        Self { platform: platform.into(), index }
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.platform, self.index))
    }
}

impl FromStr for DeviceKey {
    type Err = String;

    /// `cuda:1`, or `cuda` for its first device.
    fn from_str(text: &str) -> Result<Self, String> {
        let (platform, index) = text.split_once(':').unwrap_or((text, "0"));
        let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match index.parse() {
            Ok(index) if !platform.is_empty() && platform.chars().all(name) => {
                Ok(Self::new(platform, index))
            }
            _ => {
                Err(format!("{text:?} is no device; write PLATFORM or PLATFORM:NUMBER, as cuda:0"))
            }
        }
    }
}

impl Serialize for DeviceKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_from_its_text() {
        for key in [DeviceKey::new("cuda", 7), DeviceKey::new("my-npu", 0)] {
            assert_eq!(key.to_string().parse(), Ok(key.clone()));
            let json = serde_json::to_string(&key).unwrap();
            assert_eq!(serde_json::from_str::<DeviceKey>(&json).unwrap(), key);
        }
        assert_eq!("flex".parse(), Ok(DeviceKey::new("flex", 0)));
        for wrong in ["", ":", "cuda:", "cuda:x", "cuda:-1", ":1", "a b:0", "cuda:0:1"] {
            assert!(wrong.parse::<DeviceKey>().is_err(), "{wrong}");
        }
    }
}
