use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hardware::{Bytes, DeviceKey};

/// What a pool did so far and what it holds, all of the same moment.
///
/// `hits + misses` is the number of calls that were answered or refused, or are loading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatistics {
    /// Calls that were given a model without loading it themselves, those that waited for another
    /// call's load among them.
    pub hits: u64,
    /// Calls that found no model and set out to load it, and those that waited in vain.
    pub misses: u64,
    /// Models that were loaded.
    pub loads: u64,
    /// Loads that failed or panicked, or whose model had outgrown its plan and did not fit.
    pub loads_failed: u64,
    /// Models that were evicted.
    pub evictions: u64,
    /// What is held on all devices together, room reserved for loads under way included.
    pub bytes: Bytes,
    /// The most that `bytes` ever was.
    pub peak_bytes: Bytes,
    /// Every device by itself.
    pub devices: BTreeMap<DeviceKey, PoolUsage>,
}

/// What a pool holds on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// What it may hold.
    pub budget: Bytes,
    /// What it holds, room reserved for loads under way included.
    pub bytes: Bytes,
    /// The most it ever held.
    pub peak_bytes: Bytes,
    /// The number of models there.
    pub models: usize,
}
