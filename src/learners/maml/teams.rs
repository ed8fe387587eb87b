//! Groups of tasks at the same time, each on threads of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::backend::Backend;
use fewshot_kernels::{Route, route};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::phase::{self, PhaseTimes};

/// What `work` makes of each of the `jobs`, in their order. On a host as many teams of threads as
/// there are jobs, or threads, take one job after the other; elsewhere there is one team, the device.
///
/// # Conventions
/// Jobs may differentiate, if each has graphs of its own and holds every leaf of a graph until its
/// backward pass is over. At the end of a backward pass Burn 0.21 goes through the graphs of all
/// threads, where it takes a node for dead that an operation under way is about to use; but it leaves a
/// graph alone of which anything is held.
pub(super) fn side_by_side<B: Backend, J: Send, T: Send>(
    jobs: Vec<J>,
    work: impl Fn(J) -> T + Sync,
) -> Vec<T> {
    let threads = rayon::current_num_threads();
    let teams = if on_host::<B>() { jobs.len().min(threads) } else { 1 };
    if teams < 2 {
        return jobs.into_iter().map(work).collect();
    }
    let within = phase::innermost();
    let found: Vec<_> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let jobs = Mutex::new(jobs.into_iter().zip(&found));
    let next = || lock(&jobs).next();
    let take = || {
        while let Some((job, found)) = next() {
            let done = phase::on_its_own(within, || work(job));
            *lock(found) = Some(done);
        }
    };
    on_each(&of_threads(threads, teams), &take);
    let found =
        found.into_iter().map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner));
    let mut times = PhaseTimes::default();
    let done = found.map(|found| {
        let (done, took) = found.expect("every job was taken");
        times += took;
        done
    });
    let done = done.collect();
    phase::count_like(times);
    done
}

/// Whether operations of the backend run on the threads of this process.
pub(super) fn on_host<B: Backend>() -> bool {
    matches!(route::<B>(), Route::Host(_))
}

/// Runs `work` once on each team, all at once.
fn on_each(teams: &[ThreadPool], work: &(impl Fn() + Sync)) {
    let Some((team, others)) = teams.split_first() else { return };
    team.in_place_scope(|scope| {
        scope.spawn(|_| work());
        on_each(others, work);
    });
}

/// So many threads in so many teams, which stay for the next time.
fn of_threads(threads: usize, teams: usize) -> Arc<[ThreadPool]> {
    type Teams = ([usize; 2], Arc<[ThreadPool]>);
    static LAST: Mutex<Option<Teams>> = Mutex::new(None);
    let mut last = lock(&LAST);
    if let Some((_, found)) = last.as_ref().filter(|(key, _)| *key == [threads, teams]) {
        return found.clone();
    }
    let pool = |team: usize| {
        let threads = (team + 1) * threads / teams - team * threads / teams;
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("the system has threads to give")
    };
    let made: Arc<[ThreadPool]> = (0..teams).map(pool).collect();
    *last = Some(([threads, teams], made.clone()));
    made
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

    #[test]
    fn jobs_are_done_in_teams_and_found_in_their_order() {
        for (threads, jobs, teams) in [(1, 3, vec![1]), (2, 1, vec![2]), (3, 2, vec![1, 2])] {
            for _ in 0..3 {
                let found = on(threads, || {
                    side_by_side::<Flex, _, _>((0..jobs).collect(), |job| {
                        (job, rayon::current_num_threads())
                    })
                });
                let (order, sizes): (Vec<_>, Vec<_>) = found.into_iter().unzip();
                assert_eq!(order, (0..jobs).collect::<Vec<usize>>());
                assert!(sizes.iter().all(|size| teams.contains(size)), "{sizes:?} of {threads}");
            }
        }
    }

    #[test]
    fn a_job_that_panics_is_heard_and_the_next_ones_are_done() {
        let job = |job: usize| if job == 3 { panic!("job {job}") } else { job };
        let failed = panic::catch_unwind(AssertUnwindSafe(|| {
            on(2, || side_by_side::<Flex, _, _>((0..6).collect(), job))
        }));
        let said = failed.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*said, "job 3");
        assert_eq!(on(2, || side_by_side::<Flex, _, _>(vec![1, 2], job)), [1, 2]);
    }

    #[test]
    fn phases_of_jobs_are_phases_of_who_waits_for_them() {
        let wait = || std::thread::sleep(std::time::Duration::from_millis(20));
        let times = on(2, || {
            phase::take();
            phase(Phase::Forward, || {
                side_by_side::<Flex, _, _>(vec![(); 2], |()| {
                    wait();
                    phase(Phase::Backward, wait);
                });
            });
            phase::take()
        });
        assert!(times.forward > 15.0 && times.backward > 15.0, "{times:?}");
    }
}
