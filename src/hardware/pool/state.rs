use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::host::Demoted;
use super::in_flight::InFlightLoad;
use super::lease::Entry;
use super::ledger::{Ledger, Place};
use super::{ModelKey, PoolStatistics};

/// What stands for a model.
pub(super) enum Slot<V> {
    Ready(Arc<Entry<V>>),
    Loading(Arc<InFlightLoad<V>>),
}

/// All that the pool's lock guards.
pub(super) struct State<K, V> {
    pub(super) slots: HashMap<ModelKey<K>, Slot<V>>,
    /// Models in host memory.
    pub(super) demoted: HashMap<ModelKey<K>, Demoted<V>>,
    pub(super) ledger: Ledger,
    /// Events alone; what is held stands in the ledger.
    pub(super) counted: PoolStatistics,
}

/// A model taken out of its slot to be evicted. Its bytes are still charged.
pub(super) struct Victim<K, V> {
    pub(super) key: ModelKey<K>,
    pub(super) value: V,
    pub(super) bytes: u64,
    last_used: u64,
}

impl<K: Hash + Eq, V> State<K, V> {
    pub(super) fn new(ledger: Ledger) -> Self {
        let (slots, demoted) = (HashMap::new(), HashMap::new());
        Self { slots, demoted, ledger, counted: PoolStatistics::default() }
    }

    /// Takes out the least recently used idle models of a device until `excess` bytes are.
    ///
    /// # Errors
    /// The bytes of all idle models, if those are fewer; nothing is taken out.
    pub(super) fn take_idle(
        &mut self,
        device: usize,
        excess: u64,
    ) -> Result<Vec<Victim<K, V>>, u64> {
        if excess == 0 {
            return Ok(Vec::new());
        }
        let mut idle = self.idle(device);
        idle.sort_unstable();
        let mut bytes = 0;
        let enough = idle.iter().position(|(_, held)| {
            bytes += held;
            bytes >= excess
        });
        let last = enough.ok_or(bytes)?;
        Ok(self.take(device, &idle[..=last]))
    }

    /// Takes out all idle models of a device.
    pub(super) fn take_all_idle(&mut self, device: usize) -> Vec<Victim<K, V>> {
        let mut idle = self.idle(device);
        idle.sort_unstable();
        self.take(device, &idle)
    }

    /// When the idle models of a device were used last, each time only once, and their bytes.
    fn idle(&mut self, device: usize) -> Vec<(u64, u64)> {
        let ready = self.slots.values_mut().filter_map(|slot| match slot {
            Slot::Ready(entry) if entry.device == device => Some(entry),
            _ => None,
        });
        ready.filter_map(|entry| Some((Entry::idle_since(entry)?, entry.bytes.0))).collect()
    }

    /// Takes out idle models, the least recently used first.
    ///
    /// A lease may end in the meantime; its model is not among the chosen.
    fn take(&mut self, device: usize, chosen: &[(u64, u64)]) -> Vec<Victim<K, V>> {
        let is_chosen = |slot: &mut Slot<V>| match slot {
            Slot::Ready(entry) if entry.device == device => Entry::idle_since(entry)
                .is_some_and(|since| chosen.binary_search(&(since, entry.bytes.0)).is_ok()),
            _ => false,
        };
        let taken = self.slots.extract_if(|_, slot| is_chosen(slot));
        let mut victims: Vec<_> = taken.filter_map(|(key, slot)| Victim::of(key, slot)).collect();
        victims.sort_unstable_by_key(|victim| victim.last_used);
        victims
    }

    /// Makes room for `bytes` in host memory by taking out its oldest models; none if they do not
    /// fit even so.
    #[must_use = "what is taken out is dropped when the lock is released"]
    pub(super) fn make_host_room(&mut self, bytes: u64) -> Option<Vec<Demoted<V>>>
    where
        K: Clone,
    {
        let held: u64 = self.demoted.values().map(Demoted::bytes).sum();
        if self.ledger.host.excess(bytes) > held {
            return None;
        }
        let mut gone = Vec::new();
        while self.ledger.host.excess(bytes) > 0 {
            let oldest = self.demoted.iter().min_by_key(|(_, demoted)| demoted.since)?.0.clone();
            let demoted = self.demoted.remove(&oldest)?;
            self.ledger.give_back(Place::Host, demoted.bytes());
            gone.push(demoted);
        }
        Some(gone)
    }
}

impl<K, V> Victim<K, V> {
    fn of(key: ModelKey<K>, slot: Slot<V>) -> Option<Self> {
        let Slot::Ready(entry) = slot else { return None };
        let bytes = entry.bytes.0;
        // Idle, so that nothing else refers to it.
        let (value, last_used) = Arc::into_inner(entry)?.into_parts();
        Some(Self { key, value, bytes, last_used })
    }
}
