use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::PeakWatch;

/// What the allocator has given out. On a cache line of its own: every allocation writes to it.
#[repr(align(128))]
struct Counters {
    in_use: AtomicU64,
    allocations: AtomicU64,
    /// Highest `in_use` since [`restart_peak`].
    peak: AtomicU64,
    installed: AtomicBool,
}

static COUNTERS: Counters = Counters {
    in_use: AtomicU64::new(0),
    allocations: AtomicU64::new(0),
    peak: AtomicU64::new(0),
    installed: AtomicBool::new(false),
};

/// An allocator that counts what it gives out: the exact memory of a program on CPU backends.
///
/// A program opts in, in its `main.rs`; a library should not. Every allocation then costs two
/// atomic additions more.
///
/// # Conventions
/// Counted are the bytes asked for, without what the allocator underneath adds to them, and the
/// tensors of a CPU backend as well as everything else the program allocates. Memory that grows in
/// place or by moving counts as the difference, though a move holds both for an instant.
/// The counts are of the process: all allocators of this type add to the same.
///
/// # Example
/// ```
/// use fewshot_kernels::CountingAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::new();
///
/// let before = CountingAllocator::counts().unwrap();
/// let numbers = vec![0u8; 1000];
/// let after = CountingAllocator::counts().unwrap();
/// assert_eq!(after.in_use - before.in_use, 1000);
/// assert_eq!(after.allocations - before.allocations, 1);
/// # drop(numbers);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// What [`CountingAllocator`] counted, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorCounts {
    /// Bytes given out and not yet given back.
    pub in_use: u64,
    /// Allocations not yet given back.
    pub allocations: u64,
    /// Highest number of bytes in use since the program began.
    pub peak: u64,
}

impl CountingAllocator {
    /// Counts what the system's allocator gives out.
    pub const fn new() -> Self {
        Self
    }

    /// What is in use now, if the program has installed the allocator.
    pub fn counts() -> Option<AllocatorCounts> {
        Self::is_installed().then(|| AllocatorCounts {
            in_use: COUNTERS.in_use.load(Relaxed),
            allocations: COUNTERS.allocations.load(Relaxed),
            peak: PeakWatch::of_program(),
        })
    }

    /// Whether anything was ever allocated through it.
    pub fn is_installed() -> bool {
        COUNTERS.installed.load(Relaxed)
    }
}

/// The highest number of bytes in use since [`restart_peak`].
pub(super) fn peak() -> u64 {
    COUNTERS.peak.load(Relaxed)
}

/// The peak until now; the next one starts from what is in use now, which it returns as well.
pub(super) fn restart_peak() -> (u64, u64) {
    let now = COUNTERS.in_use.load(Relaxed);
    let before = COUNTERS.peak.swap(now, Relaxed);
    // Another thread may have raised the old peak after `now` was read: what it still holds counts.
    COUNTERS.peak.fetch_max(COUNTERS.in_use.load(Relaxed), Relaxed);
    (before, now)
}

#[inline]
fn grown(bytes: usize) {
    let bytes = bytes as u64;
    let in_use = COUNTERS.in_use.fetch_add(bytes, Relaxed) + bytes;
    if in_use > COUNTERS.peak.load(Relaxed) {
        raise_peak(in_use);
    }
}

/// The first allocation comes through here, because the peak is 0 then.
#[cold]
fn raise_peak(in_use: u64) {
    COUNTERS.peak.fetch_max(in_use, Relaxed);
    COUNTERS.installed.store(true, Relaxed);
}

#[inline]
fn shrunk(bytes: usize) {
    COUNTERS.in_use.fetch_sub(bytes as u64, Relaxed);
}

/// Counts an allocation unless it failed.
#[inline]
fn given(memory: *mut u8, layout: Layout) -> *mut u8 {
    if !memory.is_null() {
        COUNTERS.allocations.fetch_add(1, Relaxed);
        grown(layout.size());
    }
    memory
}

// SAFETY: every method passes its arguments on to `System`, which is a `GlobalAlloc`, and returns
// what that returned. Counting is atomic additions to a static: it allocates nothing, cannot panic,
// and so neither re-enters the allocator nor unwinds out of it.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for `System`.
        given(unsafe { System.alloc(layout) }, layout)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same for `System`.
        given(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Before the memory is free for another thread, whose allocation would be counted on top.
        COUNTERS.allocations.fetch_sub(1, Relaxed);
        shrunk(layout.size());
        // SAFETY: the caller says that `memory` came from this allocator with this layout, so it
        // came from `System` with it.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; the contract on `size` is the same for `System`.
        let moved = unsafe { System.realloc(memory, layout, size) };
        match size.checked_sub(layout.size()) {
            // The old block is still there.
            _ if moved.is_null() => {}
            Some(more) => grown(more),
            None => shrunk(layout.size() - size),
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    // The unit tests are run one at a time and do not install the allocator.
    fn counts() -> [u64; 2] {
        [COUNTERS.in_use.load(Relaxed), COUNTERS.allocations.load(Relaxed)]
    }

    #[test]
    fn what_is_given_out_is_counted_until_it_is_given_back() {
        let allocator = CountingAllocator::new();
        let [bytes, live] = counts();
        let layout = Layout::from_size_align(1000, 64).unwrap();
        let with_size = |size| Layout::from_size_align(size, 64).unwrap();
        // SAFETY: layouts are not empty, and each block is given back with the layout it has then.
        unsafe {
            let block = allocator.alloc(layout);
            assert_eq!(counts(), [bytes + 1000, live + 1]);
            let zeroed = allocator.alloc_zeroed(with_size(500));
            assert!((0..500).all(|i| *zeroed.add(i) == 0));
            assert_eq!(counts(), [bytes + 1500, live + 2]);
            let block = allocator.realloc(block, layout, 3000);
            assert_eq!(counts(), [bytes + 3500, live + 2], "grown");
            let block = allocator.realloc(block, with_size(3000), 200);
            assert_eq!(counts(), [bytes + 700, live + 2], "shrunk");
            allocator.dealloc(zeroed, with_size(500));
            allocator.dealloc(block, with_size(200));
        }
        assert_eq!(counts(), [bytes, live]);
    }

    #[test]
    fn what_was_refused_is_not_counted() {
        let allocator = CountingAllocator::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        // More than there are addresses. What nobody sees of it is taken for granted by compilers.
        let large = Layout::from_size_align(1 << 62, 8).unwrap();
        let before = counts();
        // SAFETY: layouts are not empty, and the one block is given back with its layout.
        unsafe {
            assert!(black_box(allocator.alloc(large)).is_null());
            assert!(black_box(allocator.alloc_zeroed(large)).is_null());
            assert_eq!(counts(), before);
            let block = allocator.alloc(layout);
            let with_block = counts();
            let moved = allocator.realloc(block, layout, large.size());
            assert!(black_box(moved).is_null());
            assert_eq!(counts(), with_block, "the old block is still in use");
            allocator.dealloc(block, layout);
        }
        assert_eq!(counts(), before);
    }
}
