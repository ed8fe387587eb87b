use std::sync::{Mutex, MutexGuard, PoisonError};

use super::CountingAllocator;
use super::allocator::{peak, restart_peak};

/// Watches at once that need no memory of their own.
const PLACES: usize = 64;

/// There is one peak to raise in an allocation. Whoever restarts it tells everyone who still counts
/// on the one before.
struct Peaks {
    /// That of each watch, by its number, without the peak that runs now.
    watched: Vec<(u64, u64)>,
    next: u64,
}

static PEAKS: Mutex<Peaks> = Mutex::new(Peaks { watched: Vec::new(), next: 0 });

impl Peaks {
    fn lock() -> MutexGuard<'static, Self> {
        PEAKS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the running peak from what is in use now, which it returns.
    fn restart(&mut self) -> u64 {
        let (before, now) = restart_peak();
        for (_, highest) in &mut self.watched {
            *highest = before.max(*highest);
        }
        now
    }
}

/// Watches the bytes in use for their highest value, from its start to the end of its life.
///
/// Watches may be nested and overlap in any way, also across threads: each has its own peak. All
/// see the allocations of the whole process.
#[derive(Debug)]
pub struct PeakWatch {
    number: u64,
    start: u64,
}

impl PeakWatch {
    /// Starts to watch, if the program has installed the [`CountingAllocator`].
    pub fn start() -> Option<Self> {
        CountingAllocator::is_installed().then(|| {
            let mut peaks = Peaks::lock();
            // Before the restart, and seldom: it would be counted in the watches around this one.
            if peaks.watched.len() == peaks.watched.capacity() {
                peaks.watched.reserve_exact(PLACES);
            }
            let (number, start) = (peaks.next, peaks.restart());
            peaks.next += 1;
            peaks.watched.push((number, start));
            Self { number, start }
        })
    }

    /// The highest number of bytes in use since it started.
    pub fn highest(&self) -> u64 {
        let peaks = Peaks::lock();
        let own = peaks.watched.iter().find(|(number, _)| *number == self.number);
        peak().max(own.map_or(self.start, |(_, highest)| *highest))
    }
}

impl Drop for PeakWatch {
    fn drop(&mut self) {
        Peaks::lock().watched.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout};

    use super::*;

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
        let above = |watch: &PeakWatch| watch.highest() - watch.start;
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
}
