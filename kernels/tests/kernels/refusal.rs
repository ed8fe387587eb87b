//! Calls that are refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is said of a call whose operands do not fit.
pub fn refusal<T>(call: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(call()))).expect_err("it must be refused");
    match panic.downcast::<String>() {
        Ok(said) => *said,
        Err(panic) => (*panic.downcast::<&str>().expect("a message")).to_owned(),
    }
}
