//! The fixed division of a batch.

use std::ops::Range;

use rayon::prelude::*;

use super::buffers::Buffer;

/// Images that are worth a part of their own: each part has its own gradient of the weights.
const IMAGES: usize = 8;

/// The images of every part of a batch; none is empty.
///
/// The number of parts follows from the batch alone, because every part rounds its own sums: were
/// it the number of threads, the results would depend on it.
pub fn slots(n: usize) -> Vec<Range<usize>> {
    let count = n.div_ceil(IMAGES).clamp(8, 16).min(n);
    (0..count).map(|slot| slot * n / count..(slot + 1) * n / count).collect()
}

/// Images `0..n` in groups.
pub fn groups(n: usize, group: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(group).map(move |start| start..(start + group).min(n))
}

/// Cuts `data`, of `image` floats an image, into the slots.
pub fn split<'a>(
    mut data: &'a mut [f32],
    image: usize,
    slots: &[Range<usize>],
) -> Vec<&'a mut [f32]> {
    let mut parts = Vec::with_capacity(slots.len());
    for slot in slots {
        let (part, rest) = data.split_at_mut(slot.len() * image);
        parts.push(part);
        data = rest;
    }
    parts
}

/// Adds the parts of all slots, in their order.
pub fn sum(parts: &[f32], len: usize) -> Buffer {
    let mut total = Buffer::stale(len);
    let piece = 4096;
    total.par_chunks_mut(piece).enumerate().for_each(|(i, total)| {
        total.fill(0.0);
        for part in parts.chunks_exact(len) {
            total.iter_mut().zip(&part[i * piece..]).for_each(|(to, from)| *to += from);
        }
    });
    total
}
