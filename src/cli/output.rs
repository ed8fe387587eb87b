use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::CliError;

/// Number of this process among those of the run.
static RANK: AtomicUsize = AtomicUsize::new(0);

/// From now on as one of several processes, of which the first one speaks.
pub(crate) fn set_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

fn speaks() -> bool {
    RANK.load(Ordering::Relaxed) == 0
}

/// Prints a result. A reader that has had enough is no failure; a full disk is.
pub(crate) fn print(line: impl Display) -> Result<(), CliError> {
    if !speaks() {
        return Ok(());
    }
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Failed(format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells what goes on; whether anybody listens does not matter.
pub(crate) fn print_status(line: impl Display) {
    if speaks() {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Tells what went wrong in this process, whichever it is.
pub(crate) fn print_error(error: impl Display) {
    let _ = match RANK.load(Ordering::Relaxed) {
        0 => writeln!(io::stderr(), "error: {error}"),
        rank => writeln!(io::stderr(), "error in process {rank}: {error}"),
    };
}
