//! Distances and prototypes.

mod distance;
mod prototypes;

pub use distance::Metric;
pub use prototypes::prototypes;
