//! Why a call falls back from a fused body to the reference.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use burn::tensor::DType;

static NOTED: Mutex<Option<HashSet<(&str, String)>>> = Mutex::new(None);

/// Logs, the first time in this process, that `operation` has no fused body for `text` and runs as plain
/// Burn operations.
pub(crate) fn log_once(operation: &'static str, text: String) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (noted, what) = (noted.get_or_insert_default(), (operation, text));
    if !noted.contains(&what) {
        log::warn!("{operation}: no fused body for {}, plain Burn operations run instead", what.1);
        noted.insert(what);
    }
}

/// True if all types are taken; the first other one is noted for `operation`.
pub(crate) fn all_taken(
    operation: &'static str,
    types: impl IntoIterator<Item = DType>,
    takes: impl Fn(DType) -> bool,
) -> bool {
    let other = types.into_iter().find(|&other| !takes(other));
    if let Some(other) = other {
        log_once(operation, format!("elements of {other:?}"));
    }
    other.is_none()
}

/// [`all_taken`] where nothing but f32 is taken.
pub(crate) fn all_f32(operation: &'static str, types: impl IntoIterator<Item = DType>) -> bool {
    all_taken(operation, types, |dtype| dtype == DType::F32)
}

/// True if every number of a type is one of f32.
pub(crate) fn goes_into_f32(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}
