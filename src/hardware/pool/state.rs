use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::lease::Entry;
use super::loading::Load;
use super::{ModelKey, PoolStatistics, PoolUsage};
use crate::hardware::DeviceKey;

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
