//! Local learning rules on any backend: Hebb, Oja, BCM and rules that are learned themselves.
//!
//! A [`PlasticityRule`] tells the [`Change`] of a weight from what goes into its neurons and what
//! comes out; no gradient is needed. On an autodiff backend all of it is differentiable, so that
//! rates, coefficients and first weights can be meta-learned.

mod bcm;
mod change;
mod coefficients;
mod error;
mod hebb;
mod oja;
mod rate;
mod rule;

pub use bcm::{Bcm, BcmForm};
pub use change::{Change, Forgetting};
pub use coefficients::Coefficients;
pub use error::PlasticityError;
pub use hebb::{Covariance, CovarianceState, Hebb};
pub use oja::{Oja, Sanger, Subspace};
pub use rate::{Rate, largest_rate};
pub use rule::PlasticityRule;

#[cfg(all(test, feature = "flex"))]
mod tests;
