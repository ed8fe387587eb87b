use std::convert::Infallible;
use std::fmt::{Debug, Display};

use thiserror::Error;

use crate::hardware::{Bytes, DeviceKey};

/// Why a pool gives no model. `E` is the error of the caller's own loading.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PoolError<E: Debug + Display = Infallible> {
    /// More than can be made free. Nothing was evicted and nothing loaded.
    #[error(
        "{need} do not fit on {device}: {freeable} of its {budget} are free or held by models \
         that are not in use"
    )]
    WouldNotFit {
        /// Where.
        device: DeviceKey,
        /// What was asked for.
        need: Bytes,
        /// What is free, and what evicting all that is not leased would free.
        freeable: Bytes,
        /// What the pool may hold there.
        budget: Bytes,
    },
    /// A model turned out to hold more than was planned, and more than can be made free for it.
    /// It was dropped, and nothing evicted for the difference.
    #[error(
        "a model planned with {planned} holds {found}, which do not fit on {device}: {freeable} \
         of its {budget} are free for it"
    )]
    Outgrew {
        /// Where.
        device: DeviceKey,
        /// What was planned.
        planned: Bytes,
        /// What it holds.
        found: Bytes,
        /// What it could have held, all that is not leased evicted.
        freeable: Bytes,
        /// What the pool may hold there.
        budget: Bytes,
    },
    /// The pool has no budget for this device.
    #[error("the pool has no budget for {device}; it has for {}", list(.known))]
    UnknownDevice {
        /// What was asked for.
        device: DeviceKey,
        /// What there is.
        known: Vec<DeviceKey>,
    },
    /// The caller's own loading failed.
    #[error("the model could not be loaded: {0}")]
    Load(E),
    /// The call waited for another one that was loading the same model, which failed.
    #[error("{key} was being loaded by another call, which failed: {reason}")]
    OtherLoad {
        /// The model.
        key: String,
        /// What stopped the other call.
        reason: String,
    },
    /// The model was in host memory and did not come back. Its record is dropped, so that the next
    /// call loads it.
    #[error("{key} could not be restored from host memory: {reason}")]
    Restore {
        /// The model.
        key: String,
        /// What stopped it.
        reason: String,
    },
    /// Loading a model asked for that same model.
    #[error("{key} is asked for by its own loading")]
    Circular {
        /// The model.
        key: String,
    },
}

impl PoolError {
    /// The same for a caller whose loading may fail; here none was called.
    pub(super) fn of_load<E: Debug + Display>(self) -> PoolError<E> {
        match self {
            Self::WouldNotFit { device, need, freeable, budget } => {
                PoolError::WouldNotFit { device, need, freeable, budget }
            }
            Self::Outgrew { device, planned, found, freeable, budget } => {
                PoolError::Outgrew { device, planned, found, freeable, budget }
            }
            Self::UnknownDevice { device, known } => PoolError::UnknownDevice { device, known },
            Self::OtherLoad { key, reason } => PoolError::OtherLoad { key, reason },
            Self::Restore { key, reason } => PoolError::Restore { key, reason },
            Self::Circular { key } => PoolError::Circular { key },
            Self::Load(never) => match never {},
        }
    }
}

fn list(known: &[DeviceKey]) -> String {
    match known {
        [] => "none".to_owned(),
        keys => keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
