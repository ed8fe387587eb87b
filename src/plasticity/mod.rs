//! Local learning rules on any backend: Hebb, Oja, BCM and rules that are learned themselves.
//!
//! A [`PlasticityRule`] tells the [`WeightUpdate`] of a weight from what goes into its neurons and what
//! comes out; no gradient is needed. On an autodiff backend all of it is differentiable, so that
//! rates, coefficients and first weights can be meta-learned.

mod bcm;
mod coefficients;
mod error;
mod hebb;
mod hierarchy;
mod linear;
mod measure;
mod oja;
mod rate;
mod reactive;
mod rule;
mod sources;
mod trace;

pub use bcm::Bcm;
pub use coefficients::Coefficients;
pub use error::PlasticityError;
pub use fewshot_kernels::local_learning::{Activation, Aggregate, BcmForm, LocalRule, RuleKind};
pub use hebb::{Covariance, Hebb};
pub use hierarchy::{Firings, HierarchyConfig, Running, Schedule, TemporalHierarchy};
pub use linear::{PlasticLinear, PlasticLinearConfig};
pub use measure::{explained_variance, row_norm};
pub use oja::{Oja, Sanger, Subspace};
pub use rate::{LearnedRate, Rate, largest_rate};
pub use reactive::{Expectation, Reaction, Reactive};
pub use rule::{Decay, PlasticityRule, RuleState, WeightUpdate};
pub use sources::{SourceStream, Sources};
pub use trace::{PlasticConnections, TraceRule};

#[cfg(all(test, feature = "flex"))]
mod tests;
