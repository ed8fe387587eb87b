//! How room is made on a device, and what becomes of the models that go.

use std::fmt::Debug;
use std::hash::Hash;
use std::mem;

use super::host::Demoted;
use super::lease::tick;
use super::ledger::Place;
use super::reservation::Reservation;
use super::state::{State, Victim};
use super::{Footprint, HostRecord, ModelKey, ModelPool, PoolError};
use crate::hardware::{Bytes, DeviceKey};

/// Where evicted models go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eviction {
    /// To host memory, where the pool uses it.
    Host,
    Dropped,
}

/// Room on a device for one model.
pub(super) struct Room<'p, K: Hash + Eq, V> {
    /// The model itself, if it was in host memory, and the host memory it held.
    pub(super) restorable: Option<(HostRecord<V>, Reservation<'p, K, V>)>,
    /// Room for what the model is planned to hold, or is known to if it was there before.
    pub(super) reservation: Reservation<'p, K, V>,
}

impl<K, V> ModelPool<K, V>
where
    K: Clone + Eq + Hash + Debug,
    V: Footprint,
{
    /// Evicts all models that are not leased, and tells how many.
    pub fn evict_all(&self) -> usize {
        (0..self.devices.len()).map(|device| self.empty(device, Eviction::Host)).sum()
    }

    /// Drops all models that are not leased and all that are in host memory.
    pub fn clear(&self) {
        for device in 0..self.devices.len() {
            self.empty(device, Eviction::Dropped);
        }
        let mut state = self.lock();
        let gone = mem::take(&mut state.demoted);
        let bytes = gone.values().map(Demoted::bytes).sum();
        state.ledger.give_back(Place::Host, bytes);
        // Records are dropped without the lock, as all that is the caller's.
        drop(state);
    }

    /// Changes what the pool may hold on a device, and evicts what no longer fits.
    ///
    /// # Errors
    /// [`PoolError::WouldNotFit`] where leased models and loads under way, which it gives as `need`,
    /// hold more than the new budget. Nothing is changed.
    pub fn set_budget(&self, device: &DeviceKey, budget: Bytes) -> Result<(), PoolError> {
        let device = self.number(device)?;
        let _gate = self.gate(device);
        let mut state = self.lock();
        let used = state.ledger.devices[device].used;
        let taken = state.take_idle(device, used.saturating_sub(budget.0));
        drop(state);
        let victims = taken.map_err(|idle| PoolError::WouldNotFit {
            device: self.devices[device].key.clone(),
            need: Bytes(used - idle),
            freeable: budget,
            budget,
        })?;
        self.retire(device, victims, Eviction::Host);
        self.lock().ledger.devices[device].budget = budget.0;
        Ok(())
    }

    /// Makes room for `planned` bytes of the model `key`, and reserves it.
    pub(super) fn admit(
        &self,
        device: usize,
        key: &ModelKey<K>,
        planned: Bytes,
    ) -> Result<Room<'_, K, V>, PoolError> {
        let _gate = self.gate(device);
        let mut state = self.lock();
        let known = state.demoted.get(key).map(|demoted| demoted.on_device);
        let need = known.unwrap_or(planned.0);
        let victims = self.choose(&mut state, device, need)?;
        let restorable = state.demoted.remove(key).map(|demoted| {
            let held = Reservation::of(self, Place::Host, demoted.bytes());
            (demoted.record, held)
        });
        drop(state);
        self.retire(device, victims, Eviction::Host);
        let mut reservation = Reservation::of(self, Place::Device(device), 0);
        reservation.grow(&mut self.lock(), need);
        Ok(Room { restorable, reservation })
    }

    /// Makes room for `more` bytes beside what is held already.
    pub(super) fn widen(
        &self,
        device: usize,
        reservation: &mut Reservation<'_, K, V>,
        more: u64,
    ) -> Result<(), PoolError> {
        if more == 0 {
            return Ok(());
        }
        let _gate = self.gate(device);
        let victims = self.choose(&mut self.lock(), device, more)?;
        self.retire(device, victims, Eviction::Host);
        reservation.grow(&mut self.lock(), more);
        Ok(())
    }

    /// Takes out what has to go before `need` bytes fit.
    fn choose(
        &self,
        state: &mut State<K, V>,
        device: usize,
        need: u64,
    ) -> Result<Vec<Victim<K, V>>, PoolError> {
        let account = state.ledger.devices[device];
        state.take_idle(device, account.excess(need)).map_err(|idle| PoolError::WouldNotFit {
            device: self.devices[device].key.clone(),
            need: Bytes(need),
            freeable: Bytes(account.budget - account.used + idle),
            budget: Bytes(account.budget),
        })
    }

    /// Evicts what is idle on a device.
    fn empty(&self, device: usize, fate: Eviction) -> usize {
        let _gate = self.gate(device);
        let victims = self.lock().take_all_idle(device);
        let count = victims.len();
        self.retire(device, victims, fate);
        count
    }

    /// Lets models go that were taken out, and then their bytes. The device's gate is held.
    fn retire(&self, device: usize, victims: Vec<Victim<K, V>>, fate: Eviction) {
        if victims.is_empty() {
            return;
        }
        let (count, bytes) =
            (victims.len() as u64, victims.iter().map(|victim| victim.bytes).sum());
        let leaving = Reservation::of(self, Place::Device(device), bytes);
        for victim in victims {
            if fate == Eviction::Host {
                self.keep_on_host(&victim);
            }
        }
        self.release(device);
        let mut state = self.lock();
        state.counted.evictions += count;
        leaving.hand_over(&mut state, 0);
    }

    /// Tells the hook that models of a device were dropped.
    pub(super) fn release(&self, device: usize) {
        if let Some(release) = &self.release {
            release(&self.devices[device].key);
        }
    }

    fn keep_on_host(&self, victim: &Victim<K, V>) {
        let Some(demote) = &self.demote else { return };
        // A record holds about what the model does; room is made before it is.
        let kept = self.host_room(victim.bytes).and_then(|reservation| {
            let record = demote(&victim.key, &victim.value)?;
            self.file(victim, record, reservation)
        });
        if let Err(reason) = kept {
            log::warn!("{} is dropped rather than kept in host memory: {reason}", victim.key);
            self.lock().counted.demotions_failed += 1;
        }
    }

    fn host_room(&self, bytes: u64) -> Result<Reservation<'_, K, V>, String> {
        let mut reservation = Reservation::of(self, Place::Host, 0);
        self.widen_on_host(&mut reservation, bytes)?;
        Ok(reservation)
    }

    fn widen_on_host(
        &self,
        reservation: &mut Reservation<'_, K, V>,
        more: u64,
    ) -> Result<(), String> {
        let mut state = self.lock();
        let gone = state.make_host_room(more);
        if gone.is_some() {
            reservation.grow(&mut state, more);
        }
        let budget = Bytes(state.ledger.host.budget);
        drop(state);
        gone.map(drop).ok_or_else(|| {
            format!("its {} do not fit in {budget}", Bytes(reservation.bytes() + more))
        })
    }

    fn file(
        &self,
        victim: &Victim<K, V>,
        record: HostRecord<V>,
        mut reservation: Reservation<'_, K, V>,
    ) -> Result<(), String> {
        let bytes = record.bytes().0;
        let more = bytes.saturating_sub(reservation.bytes());
        self.widen_on_host(&mut reservation, more)?;
        let demoted = Demoted { record, on_device: victim.bytes, since: tick(&self.clock) };
        let mut state = self.lock();
        state.demoted.insert(victim.key.clone(), demoted);
        reservation.hand_over(&mut state, bytes);
        state.counted.demotions += 1;
        Ok(())
    }
}
