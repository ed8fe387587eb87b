//! A pool of models that share the memory of devices.
//!
//! A hit takes the pool's lock once, shared, and a lease ends without it. A model that is not there is
//! brought in by one call, for which others wait. Room is made behind a gate, so that one call at a time
//! evicts; its bytes are charged to a model, or to a *reservation* that gives them back however the call
//! ends.

mod error;
mod key;
mod lease;
mod loading;
mod model_pool;
mod state;

pub use error::PoolError;
pub use key::ModelKey;
pub use lease::Lease;
pub use model_pool::ModelPool;
pub use state::{PoolStatistics, PoolUsage};

#[cfg(all(test, feature = "flex"))]
mod tests;
