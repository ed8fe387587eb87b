use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Threads that sample. A device answers in the order in which it was asked, so one thread would
/// wait for all operations that were handed over since its last sample.
const SAMPLERS: usize = 8;

/// Time between the end of a thread's sample and its next.
const INTERVAL: Duration = Duration::from_millis(1);

/// Runs `work`, and beside it threads that sample `read`; the highest of the samples.
pub(super) fn sampled<T>(
    read: impl Fn() -> Option<u64> + Sync,
    work: impl FnOnce() -> T,
) -> (T, Option<u64>) {
    thread::scope(|scope| {
        let read = &read;
        let sampler = |_| {
            // Dropped at the end of `work`, also when it panics, which ends the sampling.
            let (working, done) = channel();
            let thread = thread::Builder::new().spawn_scoped(scope, move || highest(read, &done));
            Some((working, thread.ok()?))
        };
        let samplers: Vec<_> = (0..SAMPLERS).filter_map(sampler).collect();
        if samplers.is_empty() {
            log::warn!("the peak of memory is not sampled: the system has no threads");
        }
        let value = work();
        let (working, samplers): (Vec<_>, Vec<_>) = samplers.into_iter().unzip();
        drop(working);
        let highest = samplers.into_iter().filter_map(|sampler| sampler.join().ok().flatten());
        (value, highest.max())
    })
}

fn highest(read: impl Fn() -> Option<u64>, done: &Receiver<()>) -> Option<u64> {
    let mut highest = None;
    loop {
        highest = highest.max(read());
        if done.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return highest;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    #[test]
    fn the_highest_of_the_samples_is_kept() {
        let level = AtomicU64::new(5);
        let read = || Some(level.load(SeqCst));
        let (value, peak) = sampled(read, || {
            for step in [40, 10] {
                level.store(step, SeqCst);
                thread::sleep(100 * INTERVAL);
            }
            "done"
        });
        assert_eq!((value, peak), ("done", Some(40)));
        assert_eq!(sampled(|| None, || thread::sleep(3 * INTERVAL)).1, None);
    }

    #[test]
    fn sampling_ends_when_the_work_panics() {
        let samples = AtomicU64::new(0);
        let read = || Some(samples.fetch_add(1, SeqCst));
        let work = || -> () { std::panic::resume_unwind(Box::new("stop")) };
        assert!(catch_unwind(AssertUnwindSafe(|| sampled(read, work))).is_err());
        let taken = samples.load(SeqCst);
        thread::sleep(10 * INTERVAL);
        assert_eq!(samples.load(SeqCst), taken);
    }
}
