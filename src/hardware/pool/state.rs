use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ModelKey;
use super::lease::Entry;
use super::loading::Load;
use crate::hardware::{Bytes, DeviceKey};

/// What stands for a model.
pub(super) enum Slot<V> {
    Ready(Arc<Entry<V>>),
    Loading(Arc<Load<V>>),
}

/// All that the pool's lock guards.
pub(super) struct State<K, V> {
    pub(super) slots: HashMap<ModelKey<K>, Slot<V>>,
    /// All but the hits. No device ever holds more than its budget.
    pub(super) counted: PoolStatistics,
}

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

/// A model that is not leased.
pub(super) struct Idle<K> {
    since: u64,
    pub(super) key: ModelKey<K>,
    pub(super) bytes: u64,
}

impl<K: Clone + Hash + Eq, V> State<K, V> {
    /// What a device that the pool has a budget for holds.
    pub(super) fn usage(&mut self, device: &DeviceKey) -> &mut PoolUsage {
        self.counted.devices.get_mut(device).expect("a device with a budget")
    }

    /// The idle models of a device, the least recently used first. They stay idle until the lock is
    /// released.
    pub(super) fn idle(&mut self, device: &DeviceKey) -> Vec<Idle<K>> {
        let idle = self.slots.iter_mut().filter_map(|(key, slot)| match slot {
            Slot::Ready(entry) if key.device == *device => {
                let since = Entry::idle_since(entry)?;
                Some(Idle { since, key: key.clone(), bytes: entry.bytes })
            }
            _ => None,
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|model| model.since);
        idle
    }

    pub(super) fn charge(&mut self, device: &DeviceKey, bytes: u64) {
        let usage = self.usage(device);
        usage.bytes.0 += bytes;
        assert!(usage.bytes <= usage.budget, "{bytes} bytes charged to the full {usage:?}");
        usage.peak_bytes = usage.peak_bytes.max(usage.bytes);
        self.counted.bytes.0 += bytes;
        self.counted.peak_bytes = self.counted.peak_bytes.max(self.counted.bytes);
    }

    pub(super) fn give_back(&mut self, device: &DeviceKey, bytes: u64) {
        self.usage(device).bytes.0 -= bytes;
        self.counted.bytes.0 -= bytes;
    }
}
