//! A pool of models that share the memory of devices.
//!
//! A hit takes the pool's lock once, shared, and a lease ends without it. A model that is not
//! there is brought in by one call, under a *load guard*, for which others wait on its *in-flight load*. Room is made
//! behind a gate that every device has, so that one call at a time evicts there; its bytes are
//! charged in the *ledger* to a model, or to a *reservation* that gives them back however the call ends.

mod error;
mod evict;
mod footprint;
mod host;
mod in_flight;
mod key;
mod lease;
mod ledger;
mod load_guard;
mod model_pool;
mod module_record;
mod reservation;
mod state;
mod statistics;

pub use error::PoolError;
pub use footprint::{Footprint, Pooled, module_bytes};
pub use host::HostRecord;
pub use key::ModelKey;
pub use lease::Lease;
pub use model_pool::ModelPool;
pub use statistics::{PoolStatistics, PoolUsage};

#[cfg(all(test, feature = "flex"))]
mod tests;
