//! Why a call falls back from a fused body to the reference.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use burn::tensor::DType;

/// Why a fused body leaves a call to the reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackReason {
    /// Elements of a type it has no arithmetic for.
    #[error("elements of {found:?}")]
    ElementType {
        /// Type found.
        found: DType,
    },
    /// A convolution with another window.
    #[error("windows of {kernel}x{kernel} with stride {stride} and padding {padding}")]
    Convolution {
        /// Side of the window.
        kernel: usize,
        /// Stride found.
        stride: usize,
        /// Padding found.
        padding: usize,
    },
    /// Local learning by a rule or a rate that no kernel has.
    #[error("a rule that is not built in, or a rate that is learned")]
    LearnedByOther,
    /// More layers than a launch binds.
    #[error("{found} layers, {most} at most")]
    Layers {
        /// Layers of a launch.
        most: usize,
        /// Layers found.
        found: usize,
    },
    /// More than one multiprocessor should do.
    #[error("{found} weights times sequences a tick, {most} at most")]
    Work {
        /// Weights times sequences of a tick.
        most: usize,
        /// Those found.
        found: usize,
    },
}

static NOTED: Mutex<Option<HashSet<(&str, FallbackReason)>>> = Mutex::new(None);

impl FallbackReason {
    /// Logs, the first time in this process, that `operation` runs as plain Burn operations.
    pub(crate) fn log_once(self, operation: &'static str) {
        let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.to_string();
        if noted.get_or_insert_default().insert((operation, self)) {
            log::warn!("{operation}: no fused body for {text}, plain Burn operations run instead");
        }
    }
}

/// Whether all types are taken; the first other one is noted for `operation`.
pub(crate) fn all_taken(
    operation: &'static str,
    types: impl IntoIterator<Item = DType>,
    takes: impl Fn(DType) -> bool,
) -> bool {
    let found = types.into_iter().find(|&found| !takes(found));
    if let Some(found) = found {
        FallbackReason::ElementType { found }.log_once(operation);
    }
    found.is_none()
}

/// Whether all elements are f32; likewise.
pub(crate) fn all_f32(operation: &'static str, types: impl IntoIterator<Item = DType>) -> bool {
    all_taken(operation, types, |found| found == DType::F32)
}
