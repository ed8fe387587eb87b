use burn::tensor::backend::Backend;
use fewshot_kernels::limits::{
    LimitError, ProductTime, ProductType, Strategies, copy_time, product_times,
};

use super::{Calibration, Effort};
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
    pub(super) fn measure(&self, into: &mut Calibration) -> Result<(), LimitError> {
        let bytes = match self.effort {
            Effort::Full => COPY.min(self.most(2)),
            Effort::Quick => 1 << 20,
        };
        let copied = copy_time::<B>(self.device, bytes, self.effort.seconds())?;
        (into.copied, into.copy) = (Bytes(copied.bytes), copied.rate());
        release::<B>(self.device);
        for of in ProductType::ALL {
            match self.fastest(of) {
                Ok(time) => {
                    let ProductTime { size, strategy, .. } = &time;
                    into.products.insert(of.to_string(), time.rate());
                    into.ways.insert(of.to_string(), format!("{size} x {size}, {strategy}"));
                }
                Err(LimitError::NoProduct { .. }) => {}
                Err(error) => return Err(error),
            }
            release::<B>(self.device);
        }
        Ok(())
    }

    /// The fastest product of a type: sizes double with the first way that works, and all ways are
    /// measured at the last size.
    fn fastest(&self, of: ProductType) -> Result<ProductTime, LimitError> {
        let seconds = self.effort.seconds();
        let times = |size, ways| product_times::<B>(self.device, of, size, ways, seconds);
        let mut all = Vec::new();
        let sizes: &[usize] = match self.effort {
            Effort::Full => &[256, 512, 1024, 2048, 4096, 8192],
            Effort::Quick => &[64],
        };
        let mut last = sizes[0];
        for &size in sizes {
            let one = (size * size * of.dtype().size()) as u64;
            let expected = all.last().map_or(0.0, |time: &ProductTime| 8.0 * time.seconds);
            if expected > LONGEST_PRODUCT || (size > sizes[0] && one > self.most(3)) {
                break;
            }
            all.extend(times(size, Strategies::First)?);
            last = size;
        }
        all.extend(times(last, Strategies::All)?);
        let fastest = all.into_iter().max_by(|one, other| one.rate().total_cmp(&other.rate()));
        Ok(fastest.expect("a product that was measured"))
    }

    /// Bytes of each of so many tensors that take half of what is free.
    fn most(&self, tensors: u64) -> u64 {
        let free = memory_stats::<B>(self.device).free;
        free.map_or(u64::MAX, |Bytes(free)| free / 2 / tensors)
    }
}
