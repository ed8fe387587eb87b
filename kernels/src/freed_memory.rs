//! The time for which mimalloc keeps what a program has freed.

use std::env;
use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// Number of the option `purge_delay` in mimalloc's header, for which its bindings have no name.
const PURGE_DELAY: mi_option_t = 15;

/// Milliseconds after which freed memory goes back to the operating system: longer than a training step.
const DELAY: c_long = 60_000;

/// Has mimalloc keep freed memory for a minute, not a second.
///
/// A step frees what it has allocated. Where it takes longer than a second, all of its pages would be given back, and be
/// cleared and mapped again in the next. The environment's `MIMALLOC_PURGE_DELAY`, in milliseconds, has precedence.
pub fn keep_freed_memory() {
    if env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        // SAFETY: the option takes any number, at any time.
        unsafe { mi_option_set(PURGE_DELAY, DELAY) };
    }
}
