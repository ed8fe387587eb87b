//! Groups of tasks in parallel, each on a pool of threads of its own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::backend::Backend;
use fewshot_kernels::{Route, route};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::phase::{self, PhaseTimes};

/// Runs `work` on all `jobs` and reduces the results by `plus`, in the order of the jobs. Each of so many
/// `workers` has a pool of threads and takes jobs from one queue; a single worker is the calling thread
/// with its own pool. Where the system has no threads for the pools, the calling thread runs all jobs, and a
/// warning is logged.
///
/// # Conventions
/// Jobs may differentiate, if each has graphs of its own, holds every leaf of a graph until its
/// backward pass is over, and uses none after it. At the end of a backward pass Burn 0.21 goes through
/// the graphs of all threads, where it takes a node for dead that an operation under way is about to
/// use; but it leaves a graph alone of which anything is held.
pub(super) fn parallel_reduce<J: Send, T: Send>(
    workers: usize,
    jobs: Vec<J>,
    work: impl Fn(J) -> T + Sync,
    plus: impl Fn(T, T) -> T + Sync,
) -> Option<T> {
    let in_turn = |jobs: Vec<J>| jobs.into_iter().map(&work).reduce(&plus);
    if workers < 2 {
        return in_turn(jobs);
    }
    let pools = match WorkerPools::acquire(rayon::current_num_threads(), workers) {
        Ok(pools) => pools,
        Err(error) => {
            log::warn!(
                "groups of tasks run one after the other: the system has no threads ({error})"
            );
            return in_turn(jobs);
        }
    };
    let within = phase::pause();
    let jobs = Mutex::new(jobs.into_iter().enumerate());
    let sum = Mutex::new(Sum { total: None, next: 0, waiting: BTreeMap::new() });
    let times = Mutex::new(PhaseTimes::default());
    let next = || lock(&jobs).next();
    let take = || {
        while let Some((place, job)) = next() {
            let (done, took) = phase::on_its_own(within, || work(job));
            *lock(&times) += took;
            lock(&sum).add(place, done, &plus);
        }
    };
    on_each(&pools.pools, &take);
    pools.release();
    phase::resume_like(*lock(&times));
    sum.into_inner().unwrap_or_else(PoisonError::into_inner).total
}

/// A sum in the order of places, whatever order the summands come in.
struct Sum<T> {
    /// Sum of the places before the next one.
    total: Option<T>,
    next: usize,
    waiting: BTreeMap<usize, T>,
}

impl<T> Sum<T> {
    fn add(&mut self, place: usize, summand: T, plus: &impl Fn(T, T) -> T) {
        self.waiting.insert(place, summand);
        while let Some(summand) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.total = Some(match self.total.take() {
                Some(total) => plus(total, summand),
                None => summand,
            });
        }
    }
}

/// The number of workers for so many jobs: on a host as many as there are jobs, or threads; on a device
/// one.
pub(super) fn worker_count<B: Backend>(jobs: usize) -> usize {
    if on_host::<B>() { jobs.min(rayon::current_num_threads()) } else { 1 }
}

/// True if operations of the backend run on the threads of this process.
pub(super) fn on_host<B: Backend>() -> bool {
    matches!(route::<B>(), Route::Host(_))
}

/// True if operations of the backend are kernels of an accelerator.
pub(super) fn on_device<B: Backend>() -> bool {
    matches!(route::<B>(), Route::Device(_))
}

/// Runs `work` once on each pool, concurrently.
fn on_each(pools: &[ThreadPool], work: &(impl Fn() + Sync)) {
    let Some((pool, others)) = pools.split_first() else { return };
    pool.in_place_scope(|scope| {
        scope.spawn(|_| work());
        on_each(others, work);
    });
}

/// One pool of threads for each worker.
struct WorkerPools {
    /// Threads of all pools, and pools.
    size: [usize; 2],
    pools: Vec<ThreadPool>,
}

/// Idle pools, kept for the next call. A call has its pools to itself: a thread that waits within Burn's
/// locks runs whatever other work its pool is given.
static IDLE: Mutex<Vec<WorkerPools>> = Mutex::new(Vec::new());

/// Number of sizes of which idle pools are kept.
const MAX_IDLE: usize = 4;

impl WorkerPools {
    fn acquire(threads: usize, workers: usize) -> Result<Self, ThreadPoolBuildError> {
        let size = [threads, workers];
        let mut idle = lock(&IDLE);
        if let Some(place) = idle.iter().position(|pools| pools.size == size) {
            return Ok(idle.remove(place));
        }
        drop(idle);
        let pool = |worker: usize| {
            let threads = (worker + 1) * threads / workers - worker * threads / workers;
            ThreadPoolBuilder::new().num_threads(threads).build()
        };
        Ok(Self { size, pools: (0..workers).map(pool).collect::<Result<_, _>>()? })
    }

    fn release(self) {
        let mut idle = lock(&IDLE);
        idle.push(self);
        let oldest = (idle.len() > MAX_IDLE).then(|| idle.remove(0));
        drop(idle);
        drop(oldest);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::panic::{self, AssertUnwindSafe};

    use burn::backend::Flex;

    use super::*;
    use crate::phase::{Phase, phase};

    fn on<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
        ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }

    /// Results of `work`, in the order of the jobs.
    fn all<J: Send, T: Send>(jobs: Vec<J>, work: impl Fn(J) -> T + Sync) -> Vec<T> {
        let plus = |mut all: Vec<T>, more: Vec<T>| {
            all.extend(more);
            all
        };
        let workers = worker_count::<Flex>(jobs.len());
        parallel_reduce(workers, jobs, |job| vec![work(job)], plus).unwrap_or_default()
    }

    #[test]
    fn jobs_run_on_worker_pools_and_are_summed_in_their_order() {
        for (threads, jobs, pools) in [(1, 3, vec![1]), (2, 1, vec![2]), (3, 2, vec![1, 2])] {
            for _ in 0..3 {
                let results = on(threads, || {
                    all((0..jobs).collect(), |job| (job, rayon::current_num_threads()))
                });
                let (order, sizes): (Vec<_>, Vec<_>) = results.into_iter().unzip();
                assert_eq!(order, (0..jobs).collect::<Vec<usize>>());
                assert!(sizes.iter().all(|size| pools.contains(size)), "{sizes:?} of {threads}");
            }
        }
        let slow_first = |job: u64| {
            std::thread::sleep(std::time::Duration::from_millis(20 - 4 * job));
            job
        };
        assert_eq!(on(3, || all((0..5).collect(), slow_first)), [0, 1, 2, 3, 4]);
        assert!(on(2, || all(Vec::<u64>::new(), slow_first)).is_empty());
    }

    #[test]
    fn a_job_that_panics_is_heard() {
        let job = |job: usize| if job == 3 { panic!("job {job}") } else { job };
        let failed = panic::catch_unwind(AssertUnwindSafe(|| on(2, || all((0..6).collect(), job))));
        let message = failed.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "job 3");
        assert_eq!(on(2, || all(vec![1, 2], job)), [1, 2]);
    }

    #[test]
    fn phases_of_jobs_are_phases_of_who_waits_for_them() {
        let wait = || std::thread::sleep(std::time::Duration::from_millis(20));
        let times = on(2, || {
            phase::take();
            phase(Phase::Forward, || {
                all(vec![(); 2], |()| {
                    wait();
                    phase(Phase::Backward, wait);
                })
            });
            phase::take()
        });
        assert!(times.forward > 15.0 && times.backward > 15.0, "{times:?}");
    }
}
