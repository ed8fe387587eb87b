//! A CUDA card in software: the driver's library, which executes PTX on the host's cores.
//!
//! `driver` has the functions that programs call, `ptx` reads their modules, `machine` runs their kernels. `nvrtc` keeps the
//! PTX of programs that were compiled once.

// Lanes are counted by their numbers, flags are put together by shifts, and a comparison with a NaN is negated as PTX
// says.
#![allow(clippy::needless_range_loop, clippy::precedence, clippy::neg_cmp_op_on_partial_ord)]

mod driver;
mod errors;
mod machine;
mod memory;
mod nvrtc;
mod ptx;
mod stats;

/// The number that a variable of the environment has, if it has one.
pub(crate) fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// True if a variable of the environment is there and not `0`. Read once.
pub(crate) fn is_set(name: &'static str) -> bool {
    use std::collections::HashMap;
    use std::sync::{Mutex, OnceLock};
    static SET: OnceLock<Mutex<HashMap<&'static str, bool>>> = OnceLock::new();
    let mut set =
        SET.get_or_init(Default::default).lock().unwrap_or_else(|broken| broken.into_inner());
    *set.entry(name)
        .or_insert_with(|| std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0"))
}
