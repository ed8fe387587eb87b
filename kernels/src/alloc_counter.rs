//! Memory that a program has from its allocator, exactly.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Bytes from which an allocation may raise a peak. Launches on an accelerator make smaller allocations, hundreds
/// a step, which another thread frees: with one counter for all, both would mostly wait for its cache line.
const LARGE: usize = 4096;

/// Number of counters of smaller allocations; threads share a counter where there are more threads.
const SHARDS: usize = 16;

/// Bytes given out less those given back, modulo 2^64. Every allocation writes to a counter, so each has a cache
/// line of its own.
#[repr(align(128))]
struct Counter(AtomicU64);

/// Counter of the allocations from [`LARGE`] on.
static LARGE_BYTES: Counter = Counter(AtomicU64::new(0));

/// Counters of smaller allocations, by the thread that makes or frees them.
static SMALL_BYTES: [Counter; SHARDS] = [const { Counter(AtomicU64::new(0)) }; SHARDS];

/// Highest number of bytes in use in the time of each [`PeakWatch`].
static PEAKS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// A bit for each place in [`PEAKS`] that a watch has.
static WATCHED: AtomicU64 = AtomicU64::new(0);

static INSTALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Place of this thread's counter, [`SHARDS`] before its first allocation.
    static SHARD: Cell<usize> = const { Cell::new(SHARDS) };
}

/// Counter of an allocation of `bytes`.
#[inline]
fn counter(bytes: usize) -> &'static AtomicU64 {
    if bytes >= LARGE {
        return &LARGE_BYTES.0;
    }
    // Neither lazy nor dropped, the cell is there as long as its thread.
    let shard = SHARD.try_with(Cell::get).unwrap_or(0);
    &SMALL_BYTES[if shard < SHARDS { shard } else { new_shard() }].0
}

#[cold]
fn new_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    INSTALLED.store(true, Relaxed);
    let shard = THREADS.fetch_add(1, Relaxed) % SHARDS;
    let _ = SHARD.try_with(|place| place.set(shard));
    shard
}

/// Counts a block that is given out.
#[inline]
fn count(bytes: usize) {
    counter(bytes).fetch_add(bytes as u64, Relaxed);
    if bytes >= LARGE && WATCHED.load(Relaxed) != 0 {
        raise_peaks();
    }
}

/// Counts a block that is given back.
#[inline]
fn discount(bytes: usize) {
    counter(bytes).fetch_sub(bytes as u64, Relaxed);
}

/// Sum of all counters.
fn bytes_in_use() -> u64 {
    let counters = SMALL_BYTES.iter().chain([&LARGE_BYTES]);
    let total = counters.fold(0u64, |sum, counter| sum.wrapping_add(counter.0.load(Relaxed)));
    // A block that was given out and back while the counters were read may be missing where it was given out.
    if total > u64::MAX / 2 { 0 } else { total }
}

/// Raises the peak of every watch to the bytes in use.
fn raise_peaks() {
    let (bytes, watched) = (bytes_in_use(), WATCHED.load(Relaxed));
    for (place, peak) in PEAKS.iter().enumerate() {
        if watched >> place & 1 == 1 {
            peak.fetch_max(bytes, Relaxed);
        }
    }
}

/// An allocator that counts the bytes it gives out: the exact memory of a program on CPU backends.
///
/// A program opts in, in its `main.rs`; a library should not. Every allocation then costs an
/// atomic addition more, to a counter of its thread if it is below 4 KiB.
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
/// let before = CountingAllocator::in_use().unwrap();
/// let numbers = vec![0u8; 1000];
/// assert_eq!(CountingAllocator::in_use().unwrap() - before, 1000);
/// # drop(numbers);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator<A = System>(A);

impl CountingAllocator {
    /// Counts the allocations of the system's allocator.
    pub const fn new() -> Self {
        Self(System)
    }

    /// Bytes given out and not yet given back, if the program has installed the allocator.
    pub fn in_use() -> Option<u64> {
        INSTALLED.load(Relaxed).then(bytes_in_use)
    }
}

impl<A> CountingAllocator<A> {
    /// Counts the allocations of another allocator.
    pub const fn over(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: every method passes its arguments on to an allocator, which is a `GlobalAlloc`, and returns
// what that returned. Counting is atomic operations on statics, one of which a thread-local cell picks that is
// neither lazy nor dropped: it allocates nothing, cannot panic, and so neither re-enters the allocator nor
// unwinds out of it.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        let memory = unsafe { self.0.alloc(layout) };
        if !memory.is_null() {
            count(layout.size());
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        let memory = unsafe { self.0.alloc_zeroed(layout) };
        if !memory.is_null() {
            count(layout.size());
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Before the memory is free for another thread, whose allocation would be counted on top.
        discount(layout.size());
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
            discount(layout.size());
            count(size);
        }
        moved
    }
}

/// Highest number of bytes in use from the start of a watch to the end of its life, as allocations of 4 KiB or more
/// find it.
///
/// Watches may be nested and overlap in any way, also across threads: each has its own peak. All
/// see the allocations of the whole process.
#[derive(Debug)]
pub struct PeakWatch {
    place: usize,
}

impl PeakWatch {
    /// Starts to watch, if the program has installed the [`CountingAllocator`] and fewer than 64 watches are there.
    pub fn start() -> Option<Self> {
        if !INSTALLED.load(Relaxed) {
            return None;
        }
        loop {
            let watched = WATCHED.load(Relaxed);
            let place = watched.trailing_ones() as usize;
            PEAKS.get(place)?;
            let claimed = watched | 1 << place;
            if WATCHED.compare_exchange(watched, claimed, Relaxed, Relaxed).is_ok() {
                PEAKS[place].store(0, Relaxed);
                raise_peaks();
                return Some(Self { place });
            }
        }
    }

    /// Highest number of bytes in use since the start.
    pub fn highest(&self) -> u64 {
        raise_peaks();
        PEAKS[self.place].load(Relaxed)
    }
}

impl Drop for PeakWatch {
    fn drop(&mut self) {
        WATCHED.fetch_and(!(1 << self.place), Relaxed);
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

    /// Has `size` bytes in use for an instant.
    fn touch(size: usize) {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let allocator = CountingAllocator::new();
        // SAFETY: the layout is not empty, and the block is given back with it.
        unsafe { allocator.dealloc(allocator.alloc(layout), layout) };
    }

    #[test]
    fn a_watch_has_its_own_peak_whatever_starts_and_ends_within_it() {
        touch(1);
        let start = bytes_in_use();
        let above = |watch: &PeakWatch| watch.highest() - start;
        let outer = PeakWatch::start().unwrap();
        touch(6000);
        let inner = PeakWatch::start().unwrap();
        assert_eq!(above(&inner), 0);
        touch(5000);
        assert_eq!([above(&outer), above(&inner)], [6000, 5000]);
        drop(inner);
        let overlapping = PeakWatch::start().unwrap();
        touch(7000);
        assert_eq!([above(&outer), above(&overlapping)], [7000, 7000]);
        drop(outer);
        touch(9000);
        assert_eq!(above(&overlapping), 9000);
    }

    #[test]
    fn a_watch_beyond_the_places_does_not_start() {
        touch(1);
        let watches: Vec<_> = std::iter::from_fn(PeakWatch::start).collect();
        assert_eq!(watches.len(), PEAKS.len());
        drop(watches);
        assert!(PeakWatch::start().is_some());
    }
}
