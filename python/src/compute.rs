//! Work without the interpreter's lock, whose panics are Python's exceptions.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Panics become exceptions, which print what there is to say.
pub(crate) fn silence_panics() {
    panic::set_hook(Box::new(|_| ()));
}

/// Runs `work` while other threads of Python go on; a panic, as of a setting out of range, is a `ValueError`.
pub(crate) fn computed<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    refuse_forked()?;
    let work = AssertUnwindSafe(work);
    py.detach(|| panic::catch_unwind(work)).map_err(|panic| PyValueError::new_err(text(&*panic)))
}

/// Refuses processes that were forked after the pool of threads had started: they have none of its threads, and would
/// wait for ever.
fn refuse_forked() -> PyResult<()> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    match *FIRST.get_or_init(process::id) == process::id() {
        true => Ok(()),
        false => Err(PyRuntimeError::new_err(
            "this process was forked after fewshot had started its threads, which a fork leaves behind: start \
             processes by multiprocessing.get_context(\"spawn\")",
        )),
    }
}

/// Runs handlers of signals that have come, Ctrl-C's above all: an error is the exception of one.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

fn text(panic: &(dyn Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
