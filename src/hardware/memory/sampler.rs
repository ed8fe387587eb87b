use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time between the end of a sample and the next.
const INTERVAL: Duration = Duration::from_millis(2);

/// Runs `work`, and beside it a thread that samples `read`; the highest of the samples.
pub(super) fn sampled<T>(
    read: impl Fn() -> Option<u64> + Sync,
    work: impl FnOnce() -> T,
) -> (T, Option<u64>) {
    thread::scope(|scope| {
        // Dropped at the end of `work`, also when it panics, which ends the sampling.
        let (working, done) = channel();
        let read = &read;
        let sampler = scope.spawn(move || highest(read, &done));
        let value = work();
        drop(working);
        (value, sampler.join().ok().flatten())
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
