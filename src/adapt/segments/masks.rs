use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Distribution, Tensor};

use crate::random::{Purpose, Stream};

/// Seeds for what the segments of an encoder draw.
pub(super) struct Masks<B: AutodiffBackend> {
    key: u64,
    device: B::Device,
}

impl<B: AutodiffBackend> Masks<B> {
    /// A key of three numbers of the backend, of which each has 24 bits.
    pub(super) fn draw(device: &B::Device) -> Self {
        let uniform = Distribution::Uniform(0.0, 1.0);
        let drawn =
            Tensor::<B::InnerBackend, 1>::random([3], uniform, (device, DType::F32)).into_data();
        let key = drawn
            .iter::<f64>()
            .fold(0, |key: u64, part| key.rotate_left(24) ^ (part * f64::from(1 << 24)) as u64);
        Self { key, device: device.clone() }
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
