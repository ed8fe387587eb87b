//! The processes that a run was started as.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fewshot::parallel::{Communicator, launched, world};

use super::error::{Result, usage};
use super::output;

/// All processes that `mpirun` or `srun` started with this one, or this one alone.
pub(super) fn join() -> Result<Arc<dyn Communicator>> {
    if let Some(launch) = launched() {
        output::set_rank(launch.rank);
    }
    Ok(world()?.into())
}

/// That no other process was started for `what`, which one does alone.
pub(super) fn refuse_several(world: &dyn Communicator, what: &str) -> Result {
    match world.size() {
        1 => Ok(()),
        size => Err(usage!("{what} is for one process, not for {size}")),
    }
}

/// Runs `work`; if it fails, aborts the other processes, which would wait for this one.
pub(super) fn run_or_abort<T>(
    world: &dyn Communicator,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
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
