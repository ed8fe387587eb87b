use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::device_cache::DeviceCache;
use super::pack::PackedPixels;
use crate::data::Result;

/// The bytes of all images of a dataset, one image after the other, and their copies on devices.
///
/// The copies live as long as the block, which all views of a dataset share.
pub struct PixelBlock {
    pixels: Pixels,
    banks: DeviceCache<()>,
}

enum Pixels {
    Memory(Arc<[u8]>),
    File(PackedPixels),
}

/// Bytes that are read from a file at a time where all of them are.
const CHUNK: usize = 1 << 20;

impl PixelBlock {
    /// A block in memory that is on no device yet.
    pub fn new(pixels: impl Into<Arc<[u8]>>) -> Self {
        Self { pixels: Pixels::Memory(pixels.into()), banks: DeviceCache::new() }
    }

    /// A block in a file.
    pub(super) fn in_file(pixels: PackedPixels) -> Self {
        Self { pixels: Pixels::File(pixels), banks: DeviceCache::new() }
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        match &self.pixels {
            Pixels::Memory(pixels) => pixels.len() as u64,
            Pixels::File(pixels) => pixels.bytes(),
        }
    }

    /// The bytes, if they lie in memory.
    pub fn in_memory(&self) -> Option<&[u8]> {
        match &self.pixels {
            Pixels::Memory(pixels) => Some(pixels),
            Pixels::File(_) => None,
        }
    }

    /// Reads the bytes from place `first` on to `out`.
    ///
    /// # Errors
    /// If they lie in a file that cannot be read.
    ///
    /// # Panics
    /// If they are not in the block.
    pub fn read(&self, first: u64, out: &mut [u8]) -> Result {
        match &self.pixels {
            Pixels::Memory(pixels) => {
                out.copy_from_slice(&pixels[first as usize..][..out.len()]);
                Ok(())
            }
            Pixels::File(pixels) => pixels.read(first, out),
        }
    }

    /// So many bytes from place `first` on.
    pub(super) fn part(&self, first: u64, bytes: usize) -> Result<Cow<'_, [u8]>> {
        if let Some(pixels) = self.in_memory() {
            return Ok(pixels[first as usize..][..bytes].into());
        }
        let mut part = vec![0; bytes];
        self.read(first, &mut part)?;
        Ok(part.into())
    }

    /// All bytes, in chunks of a whole number of words but for the last one.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Result<Cow<'_, [u8]>>> {
        let bytes = self.bytes();
        (0..bytes).step_by(CHUNK).map(move |first| {
            let rest = usize::try_from(bytes - first).unwrap_or(usize::MAX);
            self.part(first, rest.min(CHUNK))
        })
    }

    /// The block on `device`, as the bank that
    /// [`gather_images`](fewshot_kernels::gather_images()) takes; read and uploaded the first time.
    ///
    /// # Errors
    /// If it lies in a file that cannot be read.
    pub fn bank<B: Backend>(&self, device: &B::Device) -> Result<Tensor<B, 1, Int>> {
        self.banks.get_or_try_make((), device, || {
            let mut words: Vec<i32> = Vec::with_capacity(self.bytes().div_ceil(4) as usize);
            for chunk in self.chunks() {
                words.extend(chunk?.chunks(4).map(word));
            }
            let count = words.len();
            Ok(Tensor::from_data(TensorData::new(words, [count]), (device, DType::I32)))
        })
    }

    /// Tells whether the block is on `device` already.
    pub fn is_on<B: Backend>(&self, device: &B::Device) -> bool {
        self.banks.has::<B>(&(), device)
    }

    /// Bytes that fit in the memory of the host on their way to a device, as of when a file was opened; those that are
    /// in memory are there already.
    pub(crate) fn room_on_host(&self) -> u64 {
        self.file().map_or(u64::MAX, PackedPixels::free_memory)
    }

    /// The file that the block lies in.
    pub(super) fn file(&self) -> Option<&PackedPixels> {
        match &self.pixels {
            Pixels::Memory(_) => None,
            Pixels::File(pixels) => Some(pixels),
        }
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
        f.debug_struct("PixelBlock")
            .field("bytes", &self.bytes())
            .field("file", &self.file().map(PackedPixels::path))
            .finish_non_exhaustive()
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
        let words: Vec<i32> = block.bank::<Flex>(&device).unwrap().into_data().iter().collect();
        assert_eq!(words, [0x0403_0201, 255]);
        assert!(block.is_on::<Flex>(&device));
    }
}
