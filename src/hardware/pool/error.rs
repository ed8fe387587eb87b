use std::convert::Infallible;
use std::fmt::{Debug, Display};

use thiserror::Error;

use crate::hardware::{Bytes, DeviceKey, error::list};

/// Why a pool gives no model. `E` is the error of the caller's own loading.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum PoolError<E: Debug + Display = Infallible> {
    /// More than can be made free: either the planned amount, and nothing was loaded, or what the model
    /// turned out to hold beyond its plan, and the model was dropped. Nothing was evicted for it.
    #[error(
        "{need} do not fit on {device}: {freeable} of its {budget} are free or held by models \
         that are not in use"
    )]
    WouldNotFit { device: DeviceKey, need: Bytes, freeable: Bytes, budget: Bytes },
    /// The pool has no budget for this device.
    #[error("the pool has no budget for {device}{}", list(.known))]
    UnknownDevice { device: DeviceKey, known: Vec<DeviceKey> },
    /// The caller's own loading failed.
    #[error("the model could not be loaded: {0}")]
    Load(E),
    /// The call waited for another one that was loading the same model, which failed, or would have
    /// waited for itself.
    #[error("{key} was being loaded by another call, which failed: {reason}")]
    OtherLoad { key: String, reason: String },
}
