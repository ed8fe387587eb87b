use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use super::in_flight::InFlightLoad;
use super::lease::Clock;
use super::ledger::{Account, Ledger};
use super::load_guard::LoadGuard;
use super::state::{Slot, State};
use super::{Footprint, HostRecord, Lease, ModelKey, PoolError, PoolStatistics, PoolUsage};
use crate::hardware::{Bytes, DeviceKey};

type Release = Box<dyn Fn(&DeviceKey) + Send + Sync>;
type Demote<K, V> = Box<dyn Fn(&ModelKey<K>, &V) -> Result<HostRecord<V>, String> + Send + Sync>;

/// Models that share the memory of devices, each loaded when it is asked for and evicted when
/// others need its room and nobody uses it.
///
/// A call gives a [`Lease`], and a leased model stays. When room is needed, the models whose last
/// lease ended longest ago go first. No device ever holds more than its budget by the pool's
/// count, which takes in room reserved for loads under way, and models on their way out until they
/// are dropped.
///
/// All methods take `&self`: threads share a pool by reference or in an `Arc`. No lock is held while a
/// model loads, so that loads of several models overlap, and none that a call needs for a model
/// already there is held while others are evicted.
///
/// # Conventions
/// Calls for one model while it loads wait for that load. Where it fails, each of them ends with
/// [`PoolError::OtherLoad`] and the reason, rather than load once more behind one another; whoever
/// calls later begins anew. A load may ask the pool for other models, but two loads that wait for
/// each other's wait for ever.
///
/// What a pool calls while it evicts (the hook, the demoter, the `Drop` of a model) must not ask
/// the pool for models of that device.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::DType;
/// use burn::tensor::backend::Backend;
/// use fewshot::hardware::{Bytes, DeviceKey, ModelKey, ModelPool, PoolError, Pooled};
/// use fewshot::models::{Conv4, Conv4Config};
///
/// # fn main() -> Result<(), PoolError> {
/// let device = Default::default();
/// let cpu = DeviceKey::new("flex", 0);
/// let pool = ModelPool::<&str, Pooled<Flex, Conv4<Flex>>>::new([(cpu.clone(), Bytes(1 << 20))])
///     .with_release(move |_| {
///         Flex::sync(&device).expect("the device answers");
///         Flex::memory_cleanup(&device);
///     });
/// let key = ModelKey::new(cpu, DType::F32, "omniglot");
/// let model = pool.get_or_load(&key, Bytes(460_000), || {
///     Ok(Pooled::new(Conv4Config::omniglot().init(&device)))
/// })?;
/// assert_eq!(pool.statistics().loads, 1);
/// drop(model); // from now on it may be evicted
/// # Ok(())
/// # }
/// ```
pub struct ModelPool<K: Hash + Eq, V> {
    pub(super) devices: Vec<Device>,
    state: RwLock<State<K, V>>,
    /// Counted under the shared lock.
    hits: AtomicU64,
    pub(super) clock: Clock,
    pub(super) release: Option<Release>,
    pub(super) demote: Option<Demote<K, V>>,
}

/// A device that a pool has a budget for.
pub(super) struct Device {
    pub(super) key: DeviceKey,
    /// Held by whoever makes room on the device, from the choice of what goes until it is gone.
    gate: Mutex<()>,
}

impl<K, V> ModelPool<K, V>
where
    K: Clone + Eq + Hash + Debug,
    V: Footprint,
{
    /// An empty pool that may hold so much on each of these devices; of several budgets for one
    /// device the first counts.
    pub fn new(budgets: impl IntoIterator<Item = (DeviceKey, Bytes)>) -> Self {
        let mut devices: Vec<(DeviceKey, Bytes)> = Vec::new();
        for (key, budget) in budgets {
            if devices.iter().all(|(known, _)| *known != key) {
                devices.push((key, budget));
            }
        }
        let ledger = Ledger::new(devices.iter().map(|(_, budget)| *budget));
        let devices = devices.into_iter().map(|(key, _)| Device { key, gate: Mutex::default() });
        Self {
            devices: devices.collect(),
            state: RwLock::new(State::new(ledger)),
            hits: AtomicU64::new(0),
            clock: Clock::default(),
            release: None,
            demote: None,
        }
    }

    /// Calls `release` with the device after models were evicted from it: once for all that had to
    /// go for one call. It is the place to wait for the device and to return what its allocator
    /// keeps, by `B::sync` and `B::memory_cleanup`.
    pub fn with_release(mut self, release: impl Fn(&DeviceKey) + Send + Sync + 'static) -> Self {
        self.release = Some(Box::new(release));
        self
    }

    /// Keeps evicted models in up to `budget` of host memory, as the records that `demote` makes of
    /// them, for example by [`Pooled::to_host`](super::Pooled::to_host). They come back without
    /// being loaded; the oldest go for good when there is no room for another.
    pub fn with_host(
        mut self,
        budget: Bytes,
        demote: impl Fn(&ModelKey<K>, &V) -> Result<HostRecord<V>, String> + Send + Sync + 'static,
    ) -> Self {
        self.lock().ledger.host.budget = budget.0;
        self.demote = Some(Box::new(demote));
        self
    }

    /// A lease of the model `key`: one that is there, one that another call is loading, one back
    /// from host memory, or what `load` makes.
    ///
    /// Room for `planned` is made before `load` is called, and what the model really holds is
    /// charged after. Where that is more, more is evicted.
    ///
    /// # Errors
    /// - no budget for the device, or no room for `planned`: `load` is not called, nothing evicted
    /// - what `load` says, or the load that this call waited for
    /// - the model outgrew `planned` and does not fit: it is dropped
    ///
    /// A panic of `load` passes through; calls that waited for it end with an error.
    pub fn get_or_load<E: Debug + Display>(
        &self,
        key: &ModelKey<K>,
        planned: Bytes,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Lease<V>, PoolError<E>> {
        if let Some(lease) = self.lookup(key) {
            return Ok(lease);
        }
        let device = self.number(&key.device).map_err(PoolError::of_load)?;
        let (in_flight, is_new) = {
            let mut state = self.lock();
            match state.slots.get(key) {
                Some(Slot::Ready(entry)) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(Lease::new(entry));
                }
                Some(Slot::Loading(in_flight)) => (in_flight.clone(), false),
                None => {
                    let in_flight = Arc::new(InFlightLoad::new());
                    state.slots.insert(key.clone(), Slot::Loading(in_flight.clone()));
                    state.counted.misses += 1;
                    (in_flight, true)
                }
            }
        };
        if is_new {
            return LoadGuard::new(self, device, key, in_flight).fill(planned, load);
        }
        self.wait(key, &in_flight).map_err(PoolError::of_load)
    }

    fn lookup(&self, key: &ModelKey<K>) -> Option<Lease<V>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        match state.slots.get(key) {
            Some(Slot::Ready(entry)) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Some(Lease::new(entry))
            }
            _ => None,
        }
    }

    fn wait(&self, key: &ModelKey<K>, in_flight: &InFlightLoad<V>) -> Result<Lease<V>, PoolError> {
        let outcome = match in_flight.is_own() {
            true => Err(PoolError::Circular { key: key.to_string() }),
            false => in_flight
                .wait()
                .map_err(|reason| PoolError::OtherLoad { key: key.to_string(), reason }),
        };
        match &outcome {
            Ok(_) => _ = self.hits.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.lock().counted.misses += 1,
        }
        outcome
    }

    /// Whether the model is on its device. It may be evicted the moment after.
    pub fn contains(&self, key: &ModelKey<K>) -> bool {
        matches!(self.lock().slots.get(key), Some(Slot::Ready(_)))
    }

    /// Whether the model is in host memory.
    pub fn contains_on_host(&self, key: &ModelKey<K>) -> bool {
        self.lock().demoted.contains_key(key)
    }

    /// What the pool did and what it holds.
    pub fn statistics(&self) -> PoolStatistics {
        let state = self.lock();
        let mut models = vec![0; self.devices.len()];
        for slot in state.slots.values() {
            if let Slot::Ready(entry) = slot {
                models[entry.device] += 1;
            }
        }
        let usages = state.ledger.devices.iter().zip(models).map(|(account, n)| usage(account, n));
        let devices = self.devices.iter().map(|device| device.key.clone()).zip(usages).collect();
        let host = || usage(&state.ledger.host, state.demoted.len());
        PoolStatistics {
            hits: self.hits.load(Ordering::Relaxed),
            bytes: Bytes(state.ledger.used()),
            peak_bytes: Bytes(state.ledger.peak),
            devices,
            host: self.demote.is_some().then(host),
            ..state.counted.clone()
        }
    }

    /// The number of a device in the pool.
    pub(super) fn number(&self, key: &DeviceKey) -> Result<usize, PoolError> {
        let found = self.devices.iter().position(|device| device.key == *key);
        found.ok_or_else(|| PoolError::UnknownDevice {
            device: key.clone(),
            known: self.devices.iter().map(|device| device.key.clone()).collect(),
        })
    }

    pub(super) fn gate(&self, device: usize) -> MutexGuard<'_, ()> {
        // It guards no data of its own.
        self.devices[device].gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> ModelPool<K, V> {
    /// The pool's state, which no panic leaves half changed: only the `Hash`, `Eq` and `Clone` of a
    /// key are foreign code under this lock, and run before anything is changed.
    pub(super) fn lock(&self) -> RwLockWriteGuard<'_, State<K, V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn usage(account: &Account, models: usize) -> PoolUsage {
    PoolUsage {
        budget: Bytes(account.budget),
        bytes: Bytes(account.used),
        peak_bytes: Bytes(account.peak),
        models,
    }
}
