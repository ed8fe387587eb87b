//! Large aligned buffers, kept between calls.
//!
//! A fresh buffer costs a page fault every 4 KiB when it is first written, about 0.3 ms per MiB,
//! which is 10 to 20 % of a training step.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

/// A cache line of floats.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; 16]);

/// Most memory kept for later, in lines: 1 GiB.
const KEPT_LINES: usize = 1 << 24;

static FREE: Mutex<Vec<Vec<Line>>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Vec<Line>>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the memory kept for later calls back to the allocator.
pub fn release_buffers() {
    free().clear();
}

/// Floats in the memory that is kept for later calls.
pub fn kept_floats() -> usize {
    free().iter().map(|lines| 16 * lines.len()).sum()
}

/// Matrices of `matrix` floats, written in parallel in parts of `part` floats: `write` gets what `prepare` returned
/// for the matrix, the indices of matrix and part, and the memory of the part.
///
/// # Safety
/// `write` writes every float of its part.
pub unsafe fn in_parts<P: Sync>(
    matrices: usize,
    [matrix, part]: [usize; 2],
    prepare: impl Fn(usize) -> P + Sync,
    write: impl Fn(&P, [usize; 2], &mut [MaybeUninit<f32>]) + Sync,
) -> Vec<f32> {
    let len = matrices * matrix;
    let mut out = Vec::with_capacity(len);
    let each = out.spare_capacity_mut()[..len].par_chunks_mut(matrix).enumerate();
    each.for_each(|(number, to)| {
        let prepared = prepare(number);
        let parts = to.par_chunks_mut(part).enumerate();
        parts.for_each(|(place, to)| write(&prepared, [number, place], to));
    });
    // SAFETY: the parts of the matrices are all of it, and `write` writes them.
    unsafe { out.set_len(len) };
    out
}

/// Memory that was written, as floats.
///
/// # Safety
/// All of them were written.
#[inline]
pub unsafe fn assume_init(floats: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    // SAFETY: the same memory, whose floats were written, as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), floats.len()) }
}

/// Memory filled with zeros, as floats.
#[inline]
pub fn zero_filled(floats: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    floats.fill(MaybeUninit::new(0.0));
    // SAFETY: all are written above.
    unsafe { assume_init(floats) }
}

/// Floats as memory to be written.
///
/// # Safety
/// Nothing but floats is written.
#[inline]
pub unsafe fn as_uninit(floats: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: the same memory, where only floats are written, as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), floats.len()) }
}

/// Floats aligned to a cache line. Dropping it keeps the memory for the next one.
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` floats of unspecified value.
    pub fn stale(len: usize) -> Self {
        // With debug assertions there is a line to spare behind every buffer.
        let count = len.div_ceil(16) + usize::from(cfg!(debug_assertions));
        let lines = reuse(count).unwrap_or_else(|| vec![Line([0.0; 16]); count]);
        #[cfg(debug_assertions)]
        let lines = poison::fill(lines);
        Self { lines, len }
    }

    /// A buffer of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::stale(len);
        buffer.fill(0.0);
        buffer
    }
}

/// Floats of somebody else, or in a buffer of their own.
pub enum CowBuffer<'a> {
    /// Floats of somebody else.
    Borrowed(&'a [f32]),
    /// Floats of its own.
    Owned(Buffer),
}

impl Deref for CowBuffer<'_> {
    type Target = [f32];

    #[inline]
    fn deref(&self) -> &[f32] {
        match self {
            Self::Borrowed(floats) => floats,
            Self::Owned(buffer) => buffer,
        }
    }
}

impl From<Buffer> for CowBuffer<'_> {
    fn from(buffer: Buffer) -> Self {
        Self::Owned(buffer)
    }
}

impl<'a> From<&'a Buffer> for CowBuffer<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self::Borrowed(buffer)
    }
}

/// The smallest kept block of at least `count` lines, unless it would waste more than half; of
/// several the one used last, which is most likely still in the cache.
fn reuse(count: usize) -> Option<Vec<Line>> {
    let mut free = free();
    let fits = |lines: &Vec<Line>| (count..=2 * count).contains(&lines.len());
    let (best, _) =
        free.iter().enumerate().rev().filter(|(_, l)| fits(l)).min_by_key(|(_, l)| l.len())?;
    Some(free.remove(best))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        poison::check(self);
        let lines = std::mem::take(&mut self.lines);
        let mut free = free();
        free.push(lines);
        let mut lines: usize = free.iter().map(Vec::len).sum();
        // The oldest go first.
        while lines > KEPT_LINES {
            lines -= free.remove(0).len();
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    #[inline]
    fn deref(&self) -> &[f32] {
        // SAFETY: `lines` holds at least `len` floats without padding, all initialised.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// With debug assertions, memory that was not written holds NaN, and so does what follows every buffer:
/// reading either shows in a result, writing past the end is noticed when the buffer is dropped.
#[cfg(debug_assertions)]
mod poison {
    use super::{Buffer, Line};

    /// A NaN that no arithmetic returns: it is signalling.
    pub const POISON: u32 = 0x7fa0_dead;

    pub fn fill(mut lines: Vec<Line>) -> Vec<Line> {
        lines.fill(Line([f32::from_bits(POISON); 16]));
        lines
    }

    pub fn check(buffer: &Buffer) {
        let (whole, rest) = (buffer.len / 16, buffer.len % 16);
        let mut behind = buffer.lines[whole..].iter().flat_map(|line| line.0).skip(rest);
        let untouched = behind.all(|value| value.to_bits() == POISON);
        assert!(untouched || std::thread::panicking(), "a write past the end of a buffer");
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::mem::MaybeUninit;

    use super::poison::POISON;
    use super::{Buffer, in_parts};

    #[test]
    fn stale_buffers_do_not_show_what_was_in_them() {
        for len in [0, 1, 16, 17, 1000] {
            Buffer::stale(len).fill(1.0);
            assert!(Buffer::stale(len).iter().all(|value| value.to_bits() == POISON));
            assert!(Buffer::zeros(len).iter().all(|&value| value == 0.0));
        }
    }

    #[test]
    fn parts_of_matrices_are_written_where_they_belong() {
        for (matrices, matrix, part) in [(0, 3, 2), (2, 6, 4), (1, 12, 5), (2, 5, 5)] {
            let write = |of: &usize, place: [usize; 2], to: &mut [MaybeUninit<f32>]| {
                assert_eq!(place[0], *of);
                to.iter_mut().enumerate().for_each(|(at, to)| {
                    to.write((of * matrix + place[1] * part + at) as f32);
                });
            };
            // SAFETY: all floats of a part are written.
            let floats = unsafe { in_parts(matrices, [matrix, part], |number| number, write) };
            assert_eq!(floats, (0..matrices * matrix).map(|at| at as f32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn buffers_are_aligned_to_a_cache_line() {
        for len in [1, 16, 17] {
            assert_eq!(Buffer::stale(len).as_ptr() as usize % 64, 0);
        }
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn a_write_past_the_end_is_noticed() {
        let mut buffer = Buffer::stale(20);
        buffer.lines[1].0[4] = 1.0;
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn a_write_behind_whole_lines_is_noticed() {
        let mut buffer = Buffer::stale(32);
        buffer.lines[2].0[0] = 1.0;
    }
}
