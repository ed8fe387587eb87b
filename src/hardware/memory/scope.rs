use burn::tensor::backend::Backend;
use fewshot_kernels::PeakWatch;
use serde::{Deserialize, Serialize};

use super::meter::{Meter, synchronise};
use super::stats::MemoryStats;
use crate::hardware::Bytes;

/// Memory of a device that a piece of work took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The device before the work.
    pub before: MemoryStats,
    /// The device after it, while what it returned is still there.
    pub after: MemoryStats,
    /// Bytes in use after the work, less those before.
    pub left_behind: Option<i64>,
    /// Highest number of bytes in use during the work, above those in use before it: exact by an
    /// allocator, of a [pool](crate::hardware::MemorySource::Pool) the highest of samples, and so a lower bound.
    pub peak: Option<Bytes>,
}

/// Measures what a piece of work takes of a device's memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryScope;

impl MemoryScope {
    /// Runs `work` to its end on the device, and returns what it returned with what it took.
    ///
    /// On the CPU the peak is exact, and that of the whole process: work in other threads adds to
    /// it. Scopes may be nested and overlap. It needs the
    /// [`CountingAllocator`](crate::hardware::CountingAllocator); without it peak and difference
    /// are `None`.
    ///
    /// CubeCL keeps no peak, so other threads ask its pool about every millisecond each, and once
    /// more at the end. A peak between two samples is missed, and a sample that is asked for while
    /// the device is busy waits in its queue, so work in short steps reads too low; repeat it, or
    /// take the result as the lower bound that it is. Asking also hands waiting operations to the
    /// device earlier than usual, which costs some time. The pool counts buffers from when they are
    /// asked for, not from when the device writes to them.
    pub fn measure<B: Backend, T>(
        device: &B::Device,
        work: impl FnOnce() -> T,
    ) -> (T, MemoryReport) {
        synchronise::<B>(device);
        let meter = Meter::of::<B>(device);
        let around = meter.surroundings();
        let watch = PeakWatch::start();
        let before = meter.counted();
        let (value, seen) = run(&meter, watch, || {
            let value = work();
            synchronise::<B>(device);
            value
        });
        let after = meter.counted();
        let highest = seen.max(after.in_use).max(before.in_use).filter(|_| seen.is_some());
        let in_use = before.in_use.zip(after.in_use);
        let report = MemoryReport {
            left_behind: in_use.map(|(before, after)| after.0.wrapping_sub(before.0) as i64),
            peak: highest.zip(before.in_use).map(|(high, start)| Bytes(high.0 - start.0)),
            before: before.within(around),
            after: after.within(meter.surroundings()),
        };
        (value, report)
    }
}

/// Runs `work`; beside what it returned, the highest number of bytes in use that was seen.
fn run<T>(meter: &Meter, watch: Option<PeakWatch>, work: impl FnOnce() -> T) -> (T, Option<Bytes>) {
    match meter {
        Meter::Host => {
            let value = work();
            (value, watch.map(|watch| Bytes(watch.highest())))
        }
        #[cfg(feature = "cube")]
        Meter::Pool(pool) => {
            let read = || pool.usage().map(|usage| usage.bytes_in_use);
            let (value, highest) = super::sampler::sampled(read, work);
            (value, highest.map(Bytes))
        }
        Meter::Unknown => (work(), None),
    }
}
