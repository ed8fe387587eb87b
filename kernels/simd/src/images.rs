//! Feature maps of a batch.

use std::ops::Range;

use super::buffers::Buffer;
use super::slots::split;

/// Images of a feature map that are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Every image.
    All,
    /// The images a slot is at, at most so many.
    Current(usize),
    /// None: whoever wants it computes it again.
    None,
}

/// One feature map for the images of a batch.
pub struct Images {
    data: Buffer,
    image: usize,
    keep: Keep,
}

/// The part of [`Images`] that belongs to one slot.
pub struct SlotImages<'a> {
    data: &'a mut [f32],
    image: usize,
    keep: Keep,
}

impl Images {
    /// Room for images of `image` floats, of unspecified value.
    pub fn new(slots: &[Range<usize>], image: usize, keep: Keep) -> Self {
        let stored = match keep {
            Keep::All => slots.iter().map(Range::len).sum(),
            Keep::Current(group) => slots.len() * group,
            Keep::None => 0,
        };
        Self { data: Buffer::stale(stored * image), image, keep }
    }

    /// Image `i`, empty if none is stored.
    #[inline]
    pub fn get(&self, i: usize) -> &[f32] {
        self.group(i..i + 1)
    }

    /// Adjacent images, empty if none is stored.
    #[inline]
    pub fn group(&self, images: Range<usize>) -> &[f32] {
        match self.keep {
            Keep::All => &self.data[images.start * self.image..images.end * self.image],
            Keep::None => &[],
            Keep::Current(_) => panic!("the images were not kept"),
        }
    }

    /// The parts of the slots.
    pub fn split(&mut self, slots: &[Range<usize>]) -> Vec<SlotImages<'_>> {
        let (image, keep) = (self.image, self.keep);
        let stored = |slot: Range<usize>| match keep {
            Keep::All => slot,
            Keep::Current(group) => 0..group,
            Keep::None => 0..0,
        };
        let ranges: Vec<_> = slots.iter().cloned().map(stored).collect();
        let parts = split(&mut self.data, image, &ranges);
        parts.into_iter().map(|data| SlotImages { data, image, keep }).collect()
    }
}

impl SlotImages<'_> {
    fn range(&self, images: Range<usize>) -> Range<usize> {
        let first = match self.keep {
            Keep::All => images.start,
            Keep::Current(group) => images.start % group,
            Keep::None => return 0..0,
        };
        first * self.image..(first + images.len()) * self.image
    }

    /// Image `i` of the slot.
    #[inline]
    pub fn get(&self, i: usize) -> &[f32] {
        self.group(i..i + 1)
    }

    /// Image `i` of the slot, to be written.
    #[inline]
    pub fn get_mut(&mut self, i: usize) -> &mut [f32] {
        self.group_mut(i..i + 1)
    }

    /// Adjacent images of the slot; the first follows a whole number of groups.
    #[inline]
    pub fn group(&self, images: Range<usize>) -> &[f32] {
        &self.data[self.range(images)]
    }

    /// Adjacent images of the slot, to be written.
    #[inline]
    pub fn group_mut(&mut self, images: Range<usize>) -> &mut [f32] {
        let range = self.range(images);
        &mut self.data[range]
    }
}
