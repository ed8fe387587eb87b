//! Large aligned buffers, kept between calls.
//!
//! A fresh buffer costs a page fault every 4 KiB when it is first written, about 0.3 ms per MiB,
//! which is 10 to 20 % of a training step.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Floats aligned to a cache line. Dropping it keeps the memory for the next one.
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` floats of unspecified value.
    pub fn stale(len: usize) -> Self {
        let wanted = len.div_ceil(16);
        let lines = reuse(wanted).unwrap_or_else(|| vec![Line([0.0; 16]); wanted]);
        Self { lines, len }
    }

    /// A buffer of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::stale(len);
        buffer.fill(0.0);
        buffer
    }
}

/// The smallest kept block of at least `wanted` lines, unless it would waste more than half.
fn reuse(wanted: usize) -> Option<Vec<Line>> {
    let mut free = free();
    let fits = |lines: &Vec<Line>| (wanted..=2 * wanted).contains(&lines.len());
    let (best, _) =
        free.iter().enumerate().filter(|(_, l)| fits(l)).min_by_key(|(_, l)| l.len())?;
    Some(free.swap_remove(best))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let mut free = free();
        free.push(lines);
        let mut kept: usize = free.iter().map(Vec::len).sum();
        // The oldest go first.
        while kept > KEPT_LINES {
            kept -= free.remove(0).len();
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `lines` holds at least `len` floats without padding, all initialised.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
