use burn::tensor::backend::Backend;
use fewshot_kernels::limits::{
    CopyTime, LimitError, ProductTime, ProductType, copy_time, product_time,
};

use super::effort::Effort;
use crate::hardware::{Bytes, memory_stats, release};

/// The largest copy, in bytes.
const COPY: u64 = 1 << 30;

/// Sizes of products go on growing while the next one is expected to take no longer than this, in
/// seconds.
const LONGEST_PRODUCT: f64 = 0.1;

/// Measures kernels alone, on a device that launches them.
pub(super) struct Accelerator<'a, B: Backend> {
    pub(super) device: &'a B::Device,
    pub(super) effort: Effort,
}

impl<B: Backend> Accelerator<'_, B> {
    /// Time of a copy that is as large as memory allows.
    pub(super) fn copy(&self) -> Result<CopyTime, LimitError> {
        let bytes = match self.effort {
            Effort::Full => COPY.min(self.most(2)),
            Effort::Quick => 1 << 20,
        };
        let copied = copy_time::<B>(self.device, bytes, self.effort.seconds())?;
        release::<B>(self.device);
        Ok(copied)
    }

    /// The fastest product of each type that the device computes by kernels of its own.
    pub(super) fn products(&self) -> Result<Vec<(ProductType, ProductTime)>, LimitError> {
        let mut products = Vec::new();
        for of in ProductType::ALL {
            match self.fastest(of) {
                Ok(time) => products.push((of, time)),
                Err(error @ LimitError::NoProduct { .. }) => log::info!("{error}"),
                Err(error) => return Err(error),
            }
            release::<B>(self.device);
        }
        Ok(products)
    }

    /// The fastest product of a type. Sizes double as long as the next product is short and fits.
    fn fastest(&self, of: ProductType) -> Result<ProductTime, LimitError> {
        let time = |size| product_time::<B>(self.device, of, size, self.effort.seconds());
        let (mut size, last) = match self.effort {
            Effort::Full => (256, 8192),
            Effort::Quick => (64, 64),
        };
        let mut latest = time(size)?;
        let mut fastest = latest.clone();
        while size < last && 8.0 * latest.seconds <= LONGEST_PRODUCT {
            size *= 2;
            if (size * size * of.dtype().size()) as u64 > self.most(3) {
                break;
            }
            latest = time(size)?;
            if latest.rate() > fastest.rate() {
                fastest = latest.clone();
            }
        }
        Ok(fastest)
    }

    /// Bytes of each of so many tensors that take half of what is free.
    fn most(&self, tensors: u64) -> u64 {
        let free = memory_stats::<B>(self.device).free;
        free.map_or(u64::MAX, |Bytes(free)| free / 2 / tensors)
    }
}
