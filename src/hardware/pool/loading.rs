use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::mem;
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};

use super::lease::Entry;
use super::state::{Slot, State};
use super::{Lease, ModelKey, ModelPool, PoolError};
use crate::hardware::{Bytes, DeviceKey};

/// A model on its way into the pool. One call loads it, others wait for how that ends: with the model,
/// or with what stopped it.
pub(super) struct Load<V> {
    pub(super) loader: ThreadId,
    pub(super) ended: OnceLock<Result<Lease<V>, String>>,
}

/// The loading of a model by one call. However it ends, the model's slot is filled or empty and nobody
/// waits.
pub(super) struct Loading<'p, K: Clone + Eq + Hash + Debug, V> {
    pool: &'p ModelPool<K, V>,
    key: &'p ModelKey<K>,
    load: Arc<Load<V>>,
    /// Whether there was room to begin.
    began: bool,
}

impl<'p, K: Clone + Eq + Hash + Debug, V> Loading<'p, K, V> {
    /// Puts `key` into the pool's state as what this thread loads.
    pub(super) fn begin(
        pool: &'p ModelPool<K, V>,
        state: &mut State<K, V>,
        key: &'p ModelKey<K>,
    ) -> Self {
        let load = Arc::new(Load { loader: thread::current().id(), ended: OnceLock::new() });
        state.slots.insert(key.clone(), Slot::Loading(load.clone()));
        state.counted.misses += 1;
        Self { pool, key, load, began: false }
    }

    pub(super) fn run<E: Debug + Display>(
        mut self,
        planned: Bytes,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Lease<V>, PoolError<E>> {
        let brought = self.bring(planned, load);
        match &brought {
            Ok(lease) => drop(self.load.ended.set(Ok(lease.clone()))),
            Err(error) => self.give_up(error.to_string()),
        }
        brought
    }

    fn bring<E: Debug + Display>(
        &mut self,
        Bytes(planned): Bytes,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Lease<V>, PoolError<E>> {
        let (pool, device) = (self.pool, &self.key.device);
        let mut held = pool.reserve(device, 0, planned)?;
        self.began = true;
        let value = load().map_err(PoolError::Load)?;
        let Bytes(bytes) = (pool.weigh)(&value);
        if bytes > planned {
            match pool.reserve(device, planned, bytes - planned) {
                Ok(mut more) => held.bytes += mem::take(&mut more.bytes),
                Err(error) => {
                    drop(value);
                    pool.release(device);
                    return Err(error);
                }
            }
        }
        let entry = Entry::new(value, bytes, pool.clock.clone());
        let lease = Lease::new(&entry);
        let mut state = pool.lock();
        held.bytes -= bytes;
        state.slots.insert(self.key.clone(), Slot::Ready(entry));
        state.counted.loads += 1;
        state.usage(device).models += 1;
        Ok(lease)
    }

    /// Empties the slot and tells those who wait why.
    fn give_up(&mut self, reason: String) {
        let mut state = self.pool.lock();
        state.slots.remove(self.key);
        state.counted.loads_failed += u64::from(self.began);
        drop(state);
        let _ = self.load.ended.set(Err(reason));
    }
}

impl<K: Clone + Eq + Hash + Debug, V> Drop for Loading<'_, K, V> {
    fn drop(&mut self) {
        if self.load.ended.get().is_none() {
            self.give_up("it panicked".to_owned());
        }
    }
}

/// Bytes charged to no model: reserved for one that is coming, or still held by those that leave. They
/// are given back when this is dropped, by a panic too.
pub(super) struct Reservation<'p, K: Clone + Eq + Hash + Debug, V> {
    pub(super) pool: &'p ModelPool<K, V>,
    pub(super) device: DeviceKey,
    pub(super) bytes: u64,
}

impl<K: Clone + Eq + Hash + Debug, V> Drop for Reservation<'_, K, V> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.lock().give_back(&self.device, self.bytes);
        }
    }
}
