use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;

use super::evict::Room;
use super::in_flight::InFlightLoad;
use super::lease::Entry;
use super::reservation::Reservation;
use super::state::Slot;
use super::{Footprint, Lease, ModelKey, ModelPool, PoolError};
use crate::hardware::Bytes;

/// How a model came to its device.
enum LoadKind {
    Loaded,
    Restored,
}

/// Guards the loading of a model by one call, while others may wait for it. However it ends, its slot is
/// filled or empty and nobody waits.
pub(super) struct LoadGuard<'p, K, V>
where
    K: Clone + Eq + Hash + Debug,
    V: Footprint,
{
    pool: &'p ModelPool<K, V>,
    device: usize,
    key: &'p ModelKey<K>,
    in_flight: Arc<InFlightLoad<V>>,
    landed: bool,
}

impl<'p, K, V> LoadGuard<'p, K, V>
where
    K: Clone + Eq + Hash + Debug,
    V: Footprint,
{
    pub(super) fn new(
        pool: &'p ModelPool<K, V>,
        device: usize,
        key: &'p ModelKey<K>,
        in_flight: Arc<InFlightLoad<V>>,
    ) -> Self {
        Self { pool, device, key, in_flight, landed: false }
    }

    pub(super) fn fill<E: Debug + Display>(
        mut self,
        planned: Bytes,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Lease<V>, PoolError<E>> {
        let brought = self.bring(planned, load);
        match &brought {
            Ok(lease) => {
                self.landed = true;
                self.in_flight.finish(Ok(lease.clone()));
            }
            Err(error) => {
                let began = !matches!(error, PoolError::WouldNotFit { .. });
                self.give_up(error.to_string(), began);
            }
        }
        brought
    }

    fn bring<E: Debug + Display>(
        &self,
        planned: Bytes,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Lease<V>, PoolError<E>> {
        let room = self.pool.admit(self.device, self.key, planned).map_err(PoolError::of_load)?;
        let Room { restorable, reservation } = room;
        let (value, way) = match restorable {
            Some((record, _on_host)) => {
                let restored = record.restore();
                let key = || self.key.to_string();
                let failed = |reason| PoolError::Restore { key: key(), reason };
                (restored.map_err(failed)?, LoadKind::Restored)
            }
            None => (load().map_err(PoolError::Load)?, LoadKind::Loaded),
        };
        self.settle(value, reservation, way).map_err(PoolError::of_load)
    }

    /// Charges the model with what it holds and puts it in its slot.
    fn settle(
        &self,
        value: V,
        mut reservation: Reservation<'p, K, V>,
        way: LoadKind,
    ) -> Result<Lease<V>, PoolError> {
        let bytes = value.bytes();
        let more = bytes.0.saturating_sub(reservation.bytes());
        if let Err(error) = self.pool.widen(self.device, &mut reservation, more) {
            drop(value);
            self.pool.release(self.device);
            return Err(outgrown(error, Bytes(reservation.bytes()), bytes));
        }
        let entry = Entry::new(value, self.device, bytes, self.pool.clock.clone());
        let lease = Lease::new(&entry);
        let mut state = self.pool.lock();
        state.slots.insert(self.key.clone(), Slot::Ready(entry));
        reservation.hand_over(&mut state, bytes.0);
        match way {
            LoadKind::Loaded => state.counted.loads += 1,
            LoadKind::Restored => state.counted.restores += 1,
        }
        Ok(lease)
    }

    /// Empties the slot and tells those who wait why.
    fn give_up(&mut self, reason: String, began: bool) {
        self.landed = true;
        let mut state = self.pool.lock();
        state.slots.remove(self.key);
        state.counted.loads_failed += u64::from(began);
        drop(state);
        self.in_flight.finish(Err(reason));
    }
}

impl<K, V> Drop for LoadGuard<'_, K, V>
where
    K: Clone + Eq + Hash + Debug,
    V: Footprint,
{
    fn drop(&mut self) {
        if !self.landed {
            self.give_up("it panicked".to_owned(), true);
        }
    }
}

/// The error of a model for which the difference to its plan does not fit.
fn outgrown(error: PoolError, planned: Bytes, found: Bytes) -> PoolError {
    match error {
        PoolError::WouldNotFit { device, freeable, budget, .. } => {
            let freeable = Bytes(freeable.0 + planned.0);
            PoolError::Outgrew { device, planned, found, freeable, budget }
        }
        other => other,
    }
}
