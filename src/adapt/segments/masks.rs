use burn::tensor::backend::AutodiffBackend;

use crate::random::{Purpose, Stream, backend_key};

/// Seeds for what the segments of an encoder draw.
pub(super) struct Masks<B: AutodiffBackend> {
    key: u64,
    device: B::Device,
}

impl<B: AutodiffBackend> Masks<B> {
    /// From a key that the backend draws.
    pub(super) fn draw(device: &B::Device) -> Self {
        Self { key: backend_key::<B::InnerBackend>(device), device: device.clone() }
    }

    /// Seeds the backend for a segment of an input.
    pub(super) fn seed(&self, input: u64, segment: usize) {
        self.set([input, segment as u64]);
    }

    /// Seeds the backend for what comes after.
    pub(super) fn leave(&self) {
        self.set([u64::MAX; 2]);
    }

    fn set(&self, index: [u64; 2]) {
        B::seed(&self.device, Stream::new(self.key, Purpose::Segment, index).seed());
    }
}
