use std::fmt::{Debug, Display};
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Result, failed};

/// Number of this process among those of the run.
static RANK: AtomicUsize = AtomicUsize::new(0);

/// Tells this process its rank: of several processes only the first one prints.
pub(crate) fn set_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

fn speaks() -> bool {
    RANK.load(Ordering::Relaxed) == 0
}

/// Prints a result. A reader that has had enough is no failure; a full disk is.
pub(crate) fn print(line: impl Display) -> Result {
    if !speaks() {
        return Ok(());
    }
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(failed!("cannot write the result: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints a line of a result, or with `json`, which leaves standard output to one object, as a status.
pub(crate) fn tell(json: bool, line: impl Display) -> Result {
    if json {
        print_status(line);
        return Ok(());
    }
    print(line)
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

/// The name of an enum's value in lower case.
pub(crate) fn lower(value: impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// A dash is what is not known.
pub(crate) fn known(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// Rows of cells as a text of aligned columns.
pub(crate) fn table(rows: impl IntoIterator<Item = impl AsRef<[String]>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| rows.iter().map(move |row| row.as_ref()[column].chars().count());
    let widths: Vec<_> = (0..columns).map(|column| width(column).max().unwrap_or(0)).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.as_ref().iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}")).collect::<Vec<_>>();
        cells.join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}
