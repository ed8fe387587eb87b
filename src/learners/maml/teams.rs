//! Groups of tasks at the same time, each on threads of its own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::backend::Backend;
use fewshot_kernels::{Route, route};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::phase::{self, PhaseTimes};

/// The sum, by `plus` and in their order, of what `work` makes of each of the `jobs`, of which so many
/// teams of threads take one after the other; one team is the thread that calls, with all others.
///
/// # Conventions
/// Jobs may differentiate, if each has graphs of its own, holds every leaf of a graph until its
/// backward pass is over, and uses none after it. At the end of a backward pass Burn 0.21 goes through
/// the graphs of all threads, where it takes a node for dead that an operation under way is about to
/// use; but it leaves a graph alone of which anything is held.
pub(super) fn side_by_side<J: Send, T: Send>(
    teams: usize,
    jobs: Vec<J>,
    work: impl Fn(J) -> T + Sync,
    plus: impl Fn(T, T) -> T + Sync,
) -> Option<T> {
    if teams < 2 {
        return jobs.into_iter().map(work).reduce(plus);
    }
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
    let teams = Teams::of(rayon::current_num_threads(), teams);
    on_each(&teams.pools, &take);
    teams.back();
    phase::resume_like(*lock(&times));
    sum.into_inner().unwrap_or_else(PoisonError::into_inner).total
}

/// A sum in the order of places, whatever order the summands come in.
struct Sum<T> {
    /// Of the places before the next one.
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

/// How many teams share so many jobs: on a host as many as there are jobs, or threads; elsewhere one, the
/// device.
pub(super) fn teams<B: Backend>(jobs: usize) -> usize {
    if on_host::<B>() { jobs.min(rayon::current_num_threads()) } else { 1 }
}

/// Whether operations of the backend run on the threads of this process.
pub(super) fn on_host<B: Backend>() -> bool {
    matches!(route::<B>(), Route::Host(_))
}

/// Whether operations of the backend are kernels of an accelerator.
pub(super) fn on_device<B: Backend>() -> bool {
    matches!(route::<B>(), Route::Device(_))
}

/// Runs `work` once on each team, all at once.
fn on_each(teams: &[ThreadPool], work: &(impl Fn() + Sync)) {
    let Some((team, others)) = teams.split_first() else { return };
    team.in_place_scope(|scope| {
        scope.spawn(|_| work());
        on_each(others, work);
    });
}

/// Threads in teams.
struct Teams {
    /// Threads, and teams.
    size: [usize; 2],
    pools: Vec<ThreadPool>,
}

/// Teams that stay for the next time. Who has some has them alone: a thread that waits within Burn's
/// locks takes whatever its pool is given to do.
static IDLE: Mutex<Vec<Teams>> = Mutex::new(Vec::new());

/// Sizes of teams that stay.
const STAY: usize = 4;

impl Teams {
    fn of(threads: usize, teams: usize) -> Self {
        let size = [threads, teams];
        let mut idle = lock(&IDLE);
        if let Some(place) = idle.iter().position(|teams| teams.size == size) {
            return idle.remove(place);
        }
        drop(idle);
        let pool = |team: usize| {
            let threads = (team + 1) * threads / teams - team * threads / teams;
            let pool = ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("the system has threads to give")
        };
        Self { size, pools: (0..teams).map(pool).collect() }
    }

    fn back(self) {
        let mut idle = lock(&IDLE);
        idle.push(self);
        let oldest = (idle.len() > STAY).then(|| idle.remove(0));
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

    /// What came, in its order.
    fn all<J: Send, T: Send>(jobs: Vec<J>, work: impl Fn(J) -> T + Sync) -> Vec<T> {
        let plus = |mut all: Vec<T>, more: Vec<T>| {
            all.extend(more);
            all
        };
        let teams = teams::<Flex>(jobs.len());
        side_by_side(teams, jobs, |job| vec![work(job)], plus).unwrap_or_default()
    }

    #[test]
    fn jobs_are_done_in_teams_and_summed_in_their_order() {
        for (threads, jobs, teams) in [(1, 3, vec![1]), (2, 1, vec![2]), (3, 2, vec![1, 2])] {
            for _ in 0..3 {
                let found = on(threads, || {
                    all((0..jobs).collect(), |job| (job, rayon::current_num_threads()))
                });
                let (order, sizes): (Vec<_>, Vec<_>) = found.into_iter().unzip();
                assert_eq!(order, (0..jobs).collect::<Vec<usize>>());
                assert!(sizes.iter().all(|size| teams.contains(size)), "{sizes:?} of {threads}");
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
        let said = failed.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*said, "job 3");
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
