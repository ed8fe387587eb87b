//! Optimizers that step over all parameters at once.
//!
//! [`Sgd`], [`Adam`], [`AdamW`] and [`Lamb`] are configurations; `init` gives a
//! [`FusedOptimizer`], which is an ordinary `burn::optim::Optimizer`. A step is one call of
//! [`optim_step`](crate::kernels::optim_step()) where Burn's own optimizers run up to a dozen tensor
//! operations for every parameter.
//!
//! # Conventions
//! Defaults are PyTorch's, and not always Burn's: `epsilon` is 1e-8 (Burn: 1e-5), the weight decay
//! of AdamW 0.01 (Burn: 1e-4), and momentum is not dampened (Burn: 0.1). Records are Burn's: those of
//! `burn::optim::{Sgd, Adam, AdamW}` can be loaded and the other way round, but for the maxima of
//! AMSGrad, which are left out.
//!
//! [`AnyOptimizer`] is any of the four under one type, [`ParameterGroups`] gives some parameters other rates,
//! no decay or no step, and [`Schedule`] is the learning rate of a step.
//!
//! A module is updated in place only if it is passed by value and no clone of it is alive.

mod adam;
mod any;
mod fused;
mod groups;
mod module;
mod records;
mod schedule;
mod sgd;
mod states;

pub use adam::{Adam, AdamW, Lamb};
pub use any::{AnyOptimizer, AnyState};
pub use fused::FusedOptimizer;
pub use groups::{GroupDecay, GroupError, ParameterGroup, ParameterGroups, ParameterPath, Update};
pub use records::BurnRecords;
pub use schedule::{RateCurve, Schedule};
pub use sgd::Sgd;

#[cfg(all(test, feature = "flex"))]
mod tests;
