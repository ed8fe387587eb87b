//! The processes that a run was started as.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fewshot::parallel::{Communicator, gather_numbers, launched, world};

use crate::error::{Result, usage};
use crate::output;

/// All processes that `mpirun` or `srun` started with this one, or this one alone.
pub(super) type World = Arc<dyn Communicator>;

pub(super) fn join() -> Result<World> {
    if let Some(launch) = launched() {
        output::set_rank(launch.rank);
    }
    Ok(world()?.into())
}

/// The smallest number of any process, in all of them.
pub(super) fn smallest(world: &World, own: usize) -> Result<usize> {
    let all = gather_numbers(&**world, &[own as f64])?.concat();
    Ok(all.into_iter().fold(f64::INFINITY, f64::min) as usize)
}

/// Refuses several processes for `what`, which one does alone.
pub(super) fn refuse_several(world: &dyn Communicator, what: &str) -> Result {
    match world.size() {
        1 => Ok(()),
        size => Err(usage!("{what} is for one process, not for {size}")),
    }
}

/// Runs `work`; if it fails, aborts the other processes, which would wait for this one.
pub(super) fn run_or_abort(world: &dyn Communicator, work: impl FnOnce() -> Result) -> Result {
    let done = work();
    let Err(error) = &done else { return done };
    if world.size() == 1 {
        return done;
    }
    if world.rank() > 0 {
        // An error of all is printed by the first, whose end is theirs: Open MPI asks them to stop,
        // as Ctrl-C does, and kills them a second later.
        thread::sleep(Duration::from_secs(3));
    }
    output::print_error(error);
    world.abort(i32::from(error.code()))
}
