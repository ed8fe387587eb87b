use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hardware::Bytes;

/// Counts the ends of leases.
pub(super) type Clock = Arc<AtomicU64>;

/// A moment after all before it.
pub(super) fn tick(clock: &Clock) -> u64 {
    clock.fetch_add(1, Ordering::Relaxed) + 1
}

/// A model in the pool. Whoever holds a second reference to it has a lease.
pub(super) struct Entry<V> {
    value: V,
    /// The number of its device in the pool.
    pub(super) device: usize,
    pub(super) bytes: Bytes,
    /// When its last lease ended, in ticks of the pool's clock.
    last_used: AtomicU64,
    clock: Clock,
}

impl<V> Entry<V> {
    pub(super) fn new(value: V, device: usize, bytes: Bytes, clock: Clock) -> Arc<Self> {
        Arc::new(Self { value, device, bytes, last_used: AtomicU64::new(0), clock })
    }

    /// When the last lease ended; none while there is one.
    ///
    /// Called with the pool locked, beyond which only a lease can make a new one: what is idle
    /// stays idle until the lock is released.
    pub(super) fn idle_since(this: &mut Arc<Self>) -> Option<u64> {
        Arc::get_mut(this).map(|entry| *entry.last_used.get_mut())
    }

    /// The model, and when its last lease ended.
    pub(super) fn into_parts(self) -> (V, u64) {
        (self.value, self.last_used.into_inner())
    }
}

/// A model that its pool does not evict before the lease, and every clone of it, is dropped.
///
/// It gives the model by reference alone, and may outlive the pool.
pub struct Lease<V>(Arc<Entry<V>>);

impl<V> Lease<V> {
    pub(super) fn new(entry: &Arc<Entry<V>>) -> Self {
        Self(entry.clone())
    }
}

impl<V> Deref for Lease<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<V> Clone for Lease<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> Drop for Lease<V> {
    fn drop(&mut self) {
        // The reference is given up after this, which publishes the tick to whoever finds it gone.
        self.0.last_used.fetch_max(tick(&self.0.clock), Ordering::Relaxed);
    }
}

impl<V: fmt::Debug> fmt::Debug for Lease<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.0.value).finish()
    }
}
