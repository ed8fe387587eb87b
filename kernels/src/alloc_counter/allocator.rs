use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Bytes from which an allocation may raise the peak. Launches on an accelerator make smaller allocations, hundreds
/// a step, which another thread frees: with one counter for all, both would mostly wait for its cache line.
const LARGE: usize = 4096;

/// Counters of smaller allocations; threads share them where there are more threads.
const SHARDS: usize = 16;

/// Bytes given out less those given back, modulo 2^64; on a cache line of its own, for every allocation writes
/// to a counter.
#[repr(align(128))]
struct Counter {
    bytes: AtomicU64,
}

impl Counter {
    const fn new() -> Self {
        Self { bytes: AtomicU64::new(0) }
    }

    /// A block of so many bytes, whose counter this is, is given out.
    #[inline]
    fn grow(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if bytes >= LARGE {
            raise_peak();
        }
    }
}

/// Of allocations from [`LARGE`] on.
static OF_LARGE: Counter = Counter::new();

/// Of smaller ones, by the thread that makes or frees them.
static OF_SMALL: [Counter; SHARDS] = [const { Counter::new() }; SHARDS];

/// Highest number of bytes in use since [`restart_peak`], but for what small allocations added since the last
/// large one.
static PEAK: AtomicU64 = AtomicU64::new(0);

static INSTALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The place of this thread's counter, [`SHARDS`] before its first allocation.
    static SHARD: Cell<usize> = const { Cell::new(SHARDS) };
}

/// Where an allocation of so many bytes is counted.
#[inline]
fn counter(bytes: usize) -> &'static Counter {
    if bytes >= LARGE {
        return &OF_LARGE;
    }
    // Neither lazy nor dropped, the cell is there as long as its thread.
    let shard = SHARD.try_with(Cell::get).unwrap_or(0);
    &OF_SMALL[if shard < SHARDS { shard } else { new_shard() }]
}

#[cold]
fn new_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    INSTALLED.store(true, Relaxed);
    let shard = THREADS.fetch_add(1, Relaxed) % SHARDS;
    let _ = SHARD.try_with(|place| place.set(shard));
    shard
}

/// The sum over all counters.
fn bytes_in_use() -> u64 {
    let all = OF_SMALL.iter().chain([&OF_LARGE]).map(|counter| counter.bytes.load(Relaxed));
    let total = all.fold(0, u64::wrapping_add);
    // What a thread gave back while the counters were read may be missing where it was given out.
    if total > u64::MAX / 2 { 0 } else { total }
}

/// An allocator that counts what it gives out: the exact memory of a program on CPU backends.
///
/// A program opts in, in its `main.rs`; a library should not. Every allocation then costs an
/// atomic addition more, to a counter of its thread if it is below 4 KiB.
///
/// # Conventions
/// Counted are the bytes asked for, without what the allocator underneath adds to them, and the
/// tensors of a CPU backend as well as everything else the program allocates. Memory that grows in
/// place or by moving counts as the difference, though a move holds both for an instant.
/// The peak of a [`PeakWatch`](crate::PeakWatch) is the highest that an allocation of 4 KiB or more, or
/// whoever asked, found in use. The counts are of the process: all allocators of this type add to the
/// same.
///
/// # Example
/// ```
/// use fewshot_kernels::CountingAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::new();
///
/// let before = CountingAllocator::in_use().unwrap();
/// let numbers = vec![0u8; 1000];
/// assert_eq!(CountingAllocator::in_use().unwrap() - before, 1000);
/// # drop(numbers);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator<A = System>(A);

impl CountingAllocator {
    /// Counts what the system's allocator gives out.
    pub const fn new() -> Self {
        Self(System)
    }

    /// Bytes given out and not yet given back, if the program has installed the allocator.
    pub fn in_use() -> Option<u64> {
        Self::is_installed().then(bytes_in_use)
    }

    /// Whether anything was ever allocated through it.
    pub(super) fn is_installed() -> bool {
        INSTALLED.load(Relaxed)
    }
}

impl<A> CountingAllocator<A> {
    /// Counts what another allocator gives out.
    pub const fn over(allocator: A) -> Self {
        Self(allocator)
    }
}

/// The highest number of bytes in use since [`restart_peak`].
pub(super) fn peak() -> u64 {
    let now = bytes_in_use();
    PEAK.fetch_max(now, Relaxed).max(now)
}

/// The peak until now; the next one starts from what is in use now, which it returns as well.
pub(super) fn restart_peak() -> (u64, u64) {
    let now = bytes_in_use();
    let before = PEAK.swap(now, Relaxed);
    // Another thread may have raised the old peak after `now` was read: what it still holds counts.
    PEAK.fetch_max(bytes_in_use(), Relaxed);
    (before.max(now), now)
}

fn raise_peak() {
    let now = bytes_in_use();
    if now > PEAK.load(Relaxed) {
        PEAK.fetch_max(now, Relaxed);
    }
}

/// Counts an allocation unless it failed.
#[inline]
fn given(memory: *mut u8, layout: Layout) -> *mut u8 {
    if !memory.is_null() {
        counter(layout.size()).grow(layout.size());
    }
    memory
}

// SAFETY: every method passes its arguments on to an allocator, which is a `GlobalAlloc`, and returns
// what that returned. Counting is atomic additions to statics, one of which a thread-local cell picks that is
// neither lazy nor dropped: it allocates nothing, cannot panic, and so neither re-enters the allocator nor
// unwinds out of it.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        given(unsafe { self.0.alloc(layout) }, layout)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        given(unsafe { self.0.alloc_zeroed(layout) }, layout)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Before the memory is free for another thread, whose allocation would be counted on top.
        counter(layout.size()).bytes.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller says that `memory` came from this allocator with this layout, so it
        // came from the one underneath with it.
        unsafe { self.0.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; the contract on `size` is the same.
        let moved = unsafe { self.0.realloc(memory, layout, size) };
        // Otherwise the old block is still there.
        if !moved.is_null() {
            counter(layout.size()).bytes.fetch_sub(layout.size() as u64, Relaxed);
            counter(size).grow(size);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn what_is_given_out_is_counted_until_it_is_given_back() {
        let allocator = CountingAllocator::new();
        // The unit tests are run one at a time and do not install the allocator.
        let bytes = bytes_in_use();
        let layout = Layout::from_size_align(1000, 64).unwrap();
        let with_size = |size| Layout::from_size_align(size, 64).unwrap();
        // SAFETY: layouts are not empty, and each block is given back with the layout it has then.
        unsafe {
            let block = allocator.alloc(layout);
            assert_eq!(bytes_in_use(), bytes + 1000);
            let zeroed = allocator.alloc_zeroed(with_size(500));
            assert!((0..500).all(|i| *zeroed.add(i) == 0));
            assert_eq!(bytes_in_use(), bytes + 1500);
            let block = allocator.realloc(block, layout, 3000);
            assert_eq!(bytes_in_use(), bytes + 3500, "grown");
            let block = allocator.realloc(block, with_size(3000), 200);
            assert_eq!(bytes_in_use(), bytes + 700, "shrunk");
            allocator.dealloc(zeroed, with_size(500));
            allocator.dealloc(block, with_size(200));
        }
        assert_eq!(bytes_in_use(), bytes);
    }

    #[test]
    fn what_was_refused_is_not_counted() {
        let allocator = CountingAllocator::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        // More than there are addresses. What nobody sees of it is taken for granted by compilers.
        let large = Layout::from_size_align(1 << 62, 8).unwrap();
        let before = bytes_in_use();
        // SAFETY: layouts are not empty, and the one block is given back with its layout.
        unsafe {
            assert!(black_box(allocator.alloc(large)).is_null());
            assert!(black_box(allocator.alloc_zeroed(large)).is_null());
            assert_eq!(bytes_in_use(), before);
            let block = allocator.alloc(layout);
            let with_block = bytes_in_use();
            let moved = allocator.realloc(block, layout, large.size());
            assert!(black_box(moved).is_null());
            assert_eq!(bytes_in_use(), with_block, "the old block is still in use");
            allocator.dealloc(block, layout);
        }
        assert_eq!(bytes_in_use(), before);
    }
}
