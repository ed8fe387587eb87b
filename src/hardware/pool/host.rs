use crate::hardware::Bytes;

type Restore<V> = Box<dyn FnOnce() -> Result<V, String> + Send + Sync>;

/// A model in host memory, and the way back.
pub struct HostRecord<V> {
    bytes: Bytes,
    restore: Restore<V>,
}

impl<V> HostRecord<V> {
    /// A record that holds `bytes` of host memory and from which `restore` makes the model again, or
    /// says why it cannot.
    pub fn new(
        bytes: Bytes,
        restore: impl FnOnce() -> Result<V, String> + Send + Sync + 'static,
    ) -> Self {
        Self { bytes, restore: Box::new(restore) }
    }

    /// What it holds of host memory.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The model on its device again.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub fn restore(self) -> Result<V, String> {
        (self.restore)()
    }
}

/// An evicted model.
pub(super) struct Demoted<V> {
    pub(super) record: HostRecord<V>,
    /// What it holds on its device.
    pub(super) on_device: u64,
    /// When it came, in ticks of the pool's clock.
    pub(super) since: u64,
}

impl<V> Demoted<V> {
    /// What it holds of host memory.
    pub(super) fn bytes(&self) -> u64 {
        self.record.bytes.0
    }
}
