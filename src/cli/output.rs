use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use super::error::CliError;

/// Prints a result. A reader that has had enough is no failure; a full disk is.
pub(crate) fn print(line: impl Display) -> Result<(), CliError> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Failed(format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells what goes on; whether anybody listens does not matter.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
