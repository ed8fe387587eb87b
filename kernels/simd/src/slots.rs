//! The fixed division of a batch.

use std::ops::Range;

use rayon::prelude::*;

use super::buffers::Buffer;
use super::simd::even_parts;

/// Images that are worth a part of their own: each part has its own gradient of the weights.
const IMAGES: usize = 8;

/// Lanes whose batches need no parts to keep the threads busy. Fewer come with others beside them.
const LANES: usize = 8;

/// The images of every part of `n` images, which are those of so many `batches`; no part is empty. `lanes` such
/// calls run at once and so need fewer parts each; so do batches, which come in several calls.
///
/// The number of parts follows from the work alone, because every part rounds its own sums: were it
/// the number of threads, the results would depend on it.
pub fn slots(n: usize, lanes: usize, batches: usize) -> Vec<Range<usize>> {
    let lanes = if lanes > 1 { lanes.max(LANES) } else { 1 };
    let [least, most] = [LANES, 2 * LANES].map(|parts| parts.div_ceil(lanes));
    let (images, least) = if batches > 1 { (2 * IMAGES, 1) } else { (IMAGES, least) };
    let count = n.div_ceil(images).clamp(least, most).min(n);
    even_parts(n, count).map(|[start, end]| start..end).collect()
}

/// Images `0..n` in groups.
pub fn groups(n: usize, group: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(group).map(move |start| start..(start + group).min(n))
}

/// Cuts `data`, of `image` floats an image, into the slots.
pub fn split<'a, T>(
    mut data: &'a mut [T],
    image: usize,
    slots: &[Range<usize>],
) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(slots.len());
    for slot in slots {
        let (part, rest) = data.split_at_mut(slot.len() * image);
        parts.push(part);
        data = rest;
    }
    parts
}

/// Adds the parts of all slots, in their order.
pub fn sum(parts: Buffer, len: usize) -> Buffer {
    if parts.len() == len {
        return parts;
    }
    let mut total = Buffer::stale(len);
    let piece = 4096;
    total.par_chunks_mut(piece).enumerate().for_each(|(i, total)| {
        let own = i * piece..i * piece + total.len();
        let mut parts = parts.chunks_exact(len).map(|part| &part[own.clone()]);
        total.copy_from_slice(parts.next().expect("a batch has slots"));
        for part in parts {
            total.iter_mut().zip(part).for_each(|(to, from)| *to += from);
        }
    });
    total
}

#[cfg(test)]
mod tests {
    use super::slots;

    #[test]
    fn every_image_is_in_one_slot() {
        for (n, lanes) in [(1, 1), (5, 1), (5, 8), (25, 8), (100, 3), (360, 1)] {
            let slots = slots(n, lanes, 1);
            assert!(slots.iter().all(|slot| !slot.is_empty()));
            assert_eq!(slots.into_iter().flatten().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lanes_share_the_parts_among_them() {
        let counts = [(5, 1), (5, 2), (5, 8), (25, 4), (25, 8), (360, 1), (360, 100)];
        assert_eq!(counts.map(|(n, lanes)| slots(n, lanes, 1).len()), [5, 1, 1, 2, 2, 16, 1]);
    }

    #[test]
    fn batches_have_fewer_parts_of_more_images() {
        let counts = [(20, 4), (40, 8), (160, 32), (3200, 32)];
        assert_eq!(counts.map(|(n, batches)| slots(n, 1, batches).len()), [2, 3, 10, 16]);
    }
}
