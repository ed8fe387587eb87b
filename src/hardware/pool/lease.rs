use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the ends of leases.
pub(super) type Clock = Arc<AtomicU64>;

/// A model in the pool. Whoever holds a second reference to it has a lease.
pub(super) struct Entry<V> {
    value: V,
    pub(super) bytes: u64,
    /// When its last lease ended, in ticks of the pool's clock.
    last_used: AtomicU64,
    clock: Clock,
}

impl<V> Entry<V> {
    pub(super) fn new(value: V, bytes: u64, clock: Clock) -> Arc<Self> {
        Arc::new(Self { value, bytes, last_used: AtomicU64::new(0), clock })
    }

    /// When the last lease ended; none while there is one.
    ///
    /// Called with the pool locked, beyond which only a lease can make a new one: what is idle
    /// stays idle until the lock is released.
    pub(super) fn idle_since(this: &mut Arc<Self>) -> Option<u64> {
        Arc::get_mut(this).map(|entry| *entry.last_used.get_mut())
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
        let Entry { clock, last_used, .. } = &*self.0;
        let now = clock.fetch_add(1, Ordering::Relaxed) + 1;
        // The reference is given up after this, which publishes the tick to whoever finds it gone.
        last_used.fetch_max(now, Ordering::Relaxed);
    }
}

impl<V: fmt::Debug> fmt::Debug for Lease<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&**self).finish()
    }
}
