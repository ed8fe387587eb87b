use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::thread;

use super::lease::Clock;
use super::loading::{Load, Loading, Reservation};
use super::state::{Idle, Slot, State};
use super::{Lease, ModelKey, PoolError, PoolStatistics, PoolUsage};
use crate::hardware::{Bytes, DeviceKey};

type Release = Box<dyn Fn(&DeviceKey) + Send + Sync>;

/// Models that share the memory of devices, each loaded when it is asked for and evicted when
/// others need its room and nobody uses it.
///
/// A call gives a [`Lease`], and a leased model stays. When room is needed, the models whose last
/// lease ended longest ago go first. No device ever holds more than its budget by the pool's
/// count, which takes in room reserved for loads under way, and models on their way out until they
/// are dropped.
///
/// All methods take `&self`: threads share a pool by reference or in an `Arc`. No lock is held while a
/// model loads, so that loads of several models overlap; while models are evicted, no lock is held
/// that a call needs for a model already there.
///
/// # Conventions
/// Calls for one model while it loads wait for that load. Where it fails, each of them ends with
/// [`PoolError::OtherLoad`] and the reason, rather than load once more behind one another; whoever
/// calls later begins anew. A load may ask the pool for other models, but two loads that ask for
/// each other's model wait for ever.
///
/// What a pool calls while it evicts (the hook, the `Drop` of a model) must not ask the pool for
/// models that are not there.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::DType;
/// use burn::tensor::backend::Backend;
/// use fewshot::hardware::{Bytes, DeviceKey, ModelKey, ModelPool, ModelProfile, PoolError};
/// use fewshot::models::{Conv4, Conv4Config};
///
/// # fn main() -> Result<(), PoolError> {
/// let device = Default::default();
/// let cpu = DeviceKey::new("flex", 0);
/// let weigh = |model: &Conv4<Flex>| ModelProfile::of::<Flex, _>(model).bytes().bytes;
/// let pool = ModelPool::new([(cpu.clone(), Bytes(1 << 20))], weigh).with_release(move |_| {
///     Flex::sync(&device).expect("the device answers");
///     Flex::memory_cleanup(&device);
/// });
/// let key = ModelKey::new(cpu, DType::F32, "omniglot");
/// let load = || Ok(Conv4Config::omniglot().init(&device));
/// let model = pool.get_or_load(&key, Bytes(460_000), load)?;
/// assert_eq!(pool.statistics().loads, 1);
/// drop(model); // from now on it may be evicted
/// # Ok(())
/// # }
/// ```
pub struct ModelPool<K: Clone + Eq + Hash + Debug, V> {
    state: RwLock<State<K, V>>,
    /// Held by whoever makes room, from the choice of what goes until it is gone.
    gate: Mutex<()>,
    /// Counted under the shared lock.
    hits: AtomicU64,
    pub(super) clock: Clock,
    pub(super) weigh: fn(&V) -> Bytes,
    release: Option<Release>,
}

impl<K: Clone + Eq + Hash + Debug, V> ModelPool<K, V> {
    /// An empty pool that may hold so much on each of these devices. `weigh` tells what dropping a model
    /// gives back; it is asked once.
    pub fn new(
        budgets: impl IntoIterator<Item = (DeviceKey, Bytes)>,
        weigh: fn(&V) -> Bytes,
    ) -> Self {
        let devices = budgets
            .into_iter()
            .map(|(device, budget)| (device, PoolUsage { budget, ..PoolUsage::default() }));
        let counted = PoolStatistics { devices: devices.collect(), ..PoolStatistics::default() };
        Self {
            state: RwLock::new(State { slots: HashMap::new(), counted }),
            gate: Mutex::default(),
            hits: AtomicU64::new(0),
            clock: Clock::default(),
            weigh,
            release: None,
        }
    }

    /// Calls `release` with the device after models were evicted from it: once for all that had to
    /// go for one call. It is the place to wait for the device and to return what its allocator
    /// keeps, by `B::sync` and `B::memory_cleanup`.
    pub fn with_release(mut self, release: impl Fn(&DeviceKey) + Send + Sync + 'static) -> Self {
        self.release = Some(Box::new(release));
        self
    }

    /// A lease of the model `key`: one that is there, one that another call is loading, or what `load`
    /// makes.
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
        let shared = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let found = self.hit(&shared, key);
        drop(shared);
        if let Some(lease) = found {
            return Ok(lease);
        }
        let mut state = self.lock();
        if let Some(lease) = self.hit(&state, key) {
            return Ok(lease);
        }
        if let Some(Slot::Loading(load)) = state.slots.get(key) {
            let load = load.clone();
            drop(state);
            return self.wait(key, &load);
        }
        if !state.counted.devices.contains_key(&key.device) {
            let known = state.counted.devices.keys().cloned().collect();
            return Err(PoolError::UnknownDevice { device: key.device.clone(), known });
        }
        let loading = Loading::begin(self, &mut state, key);
        drop(state);
        loading.run(planned, load)
    }

    fn hit(&self, state: &State<K, V>, key: &ModelKey<K>) -> Option<Lease<V>> {
        let Some(Slot::Ready(entry)) = state.slots.get(key) else { return None };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(Lease::new(entry))
    }

    fn wait<E: Debug + Display>(
        &self,
        key: &ModelKey<K>,
        load: &Load<V>,
    ) -> Result<Lease<V>, PoolError<E>> {
        let ended = match load.loader == thread::current().id() {
            true => Err("its own loading asks for it".to_owned()),
            false => load.ended.wait().clone(),
        };
        match &ended {
            Ok(_) => _ = self.hits.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.lock().counted.misses += 1,
        }
        ended.map_err(|reason| PoolError::OtherLoad { key: key.to_string(), reason })
    }

    /// Evicts all models that are not leased, and tells how many.
    pub fn evict_all(&self) -> usize {
        let devices: Vec<_> = self.lock().counted.devices.keys().cloned().collect();
        let empty = |device: &DeviceKey| {
            let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.lock();
            let idle = state.idle(device);
            let count = idle.len();
            self.retire(state, device, idle);
            count
        };
        devices.iter().map(empty).sum()
    }

    /// Whether the model is on its device. It may be evicted the moment after.
    pub fn contains(&self, key: &ModelKey<K>) -> bool {
        matches!(self.lock().slots.get(key), Some(Slot::Ready(_)))
    }

    /// What the pool did and what it holds.
    pub fn statistics(&self) -> PoolStatistics {
        let state = self.lock();
        PoolStatistics { hits: self.hits.load(Ordering::Relaxed), ..state.counted.clone() }
    }

    /// Makes room on a device that there is a budget for, for `need` bytes of a model that holds so much
    /// there already, and reserves it.
    pub(super) fn reserve<E: Debug + Display>(
        &self,
        device: &DeviceKey,
        held: u64,
        need: u64,
    ) -> Result<Reservation<'_, K, V>, PoolError<E>> {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        let mut idle = state.idle(device);
        let PoolUsage { budget, bytes, .. } = *state.usage(device);
        let freeable = budget.0 - bytes.0 + idle.iter().map(|model| model.bytes).sum::<u64>();
        if need > freeable {
            let device = device.clone();
            let (need, freeable) = (Bytes(held + need), Bytes(held + freeable));
            return Err(PoolError::WouldNotFit { device, need, freeable, budget });
        }
        let excess = (bytes.0 + need).saturating_sub(budget.0);
        let mut freed = 0;
        let staying = idle.iter().position(|model| {
            let enough = freed >= excess;
            freed += model.bytes;
            enough
        });
        idle.truncate(staying.unwrap_or(idle.len()));
        self.retire(state, device, idle);
        self.lock().charge(device, need);
        Ok(Reservation { pool: self, device: device.clone(), bytes: need })
    }

    /// Lets models go that are idle, and then their bytes. The gate is held.
    fn retire(
        &self,
        mut state: RwLockWriteGuard<'_, State<K, V>>,
        device: &DeviceKey,
        idle: Vec<Idle<K>>,
    ) {
        if idle.is_empty() {
            return;
        }
        let bytes = idle.iter().map(|model| model.bytes).sum();
        let gone: Vec<_> = idle.iter().map(|model| state.slots.remove(&model.key)).collect();
        state.usage(device).models -= gone.len();
        drop(state);
        let _leaving = Reservation { pool: self, device: device.clone(), bytes };
        // Models are dropped without the lock, as all that is the caller's.
        drop(gone);
        self.release(device);
        self.lock().counted.evictions += idle.len() as u64;
    }

    /// Tells the hook that models of a device were dropped.
    pub(super) fn release(&self, device: &DeviceKey) {
        if let Some(release) = &self.release {
            release(device);
        }
    }

    /// The pool's state, which no panic leaves half changed: only the `Hash`, `Eq` and `Clone` of a
    /// key are foreign code under this lock, and run before anything is changed.
    pub(super) fn lock(&self) -> RwLockWriteGuard<'_, State<K, V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
