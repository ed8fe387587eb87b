use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::device_cache::DeviceCache;

/// The bytes of all images of a dataset, one image after the other, and their copies on devices.
///
/// The copies live as long as the block, which all views of a dataset share.
pub struct PixelBlock {
    pixels: Arc<[u8]>,
    banks: DeviceCache<()>,
}

impl PixelBlock {
    /// A block that is on no device yet.
    pub fn new(pixels: impl Into<Arc<[u8]>>) -> Self {
        Self { pixels: pixels.into(), banks: DeviceCache::new() }
    }

    /// The bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The block on `device`, as the bank that
    /// [`gather_images`](fewshot_kernels::gather_images()) takes; uploaded the first time.
    pub fn bank<B: Backend>(&self, device: &B::Device) -> Tensor<B, 1, Int> {
        self.banks.get_or_make((), device, || {
            let words: Vec<i32> = self.pixels.chunks(4).map(word).collect();
            let count = words.len();
            Tensor::from_data(TensorData::new(words, [count]), (device, DType::I32))
        })
    }

    /// Tells whether the block is on `device` already.
    pub fn is_on<B: Backend>(&self, device: &B::Device) -> bool {
        self.banks.has::<B>(&(), device)
    }
}

/// Up to four bytes, the first in the lowest bits.
fn word(bytes: &[u8]) -> i32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    i32::from_le_bytes(word)
}

impl fmt::Debug for PixelBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PixelBlock").field("bytes", &self.pixels.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;

    #[test]
    fn bytes_go_four_to_a_word_the_first_in_the_lowest_bits() {
        let block = PixelBlock::new(vec![1, 2, 3, 4, 255, 0]);
        let device = Default::default();
        assert!(!block.is_on::<Flex>(&device));
        let words: Vec<i32> = block.bank::<Flex>(&device).into_data().iter().collect();
        assert_eq!(words, [0x0403_0201, 255]);
        assert!(block.is_on::<Flex>(&device));
    }
}
