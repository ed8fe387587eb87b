//! Scores of queries by their prototypes.

pub(crate) mod cpu;
mod mahalanobis;
pub(crate) mod reference;

pub use mahalanobis::mahalanobis;

use std::fmt;
use std::str::FromStr;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::host::{unwrap, wrap};
use crate::metrics::{check_prototypes, table};

/// The measure of closeness between a query and a prototype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Minus the squared Euclidean distance, as in the paper on prototypical networks.
    ///
    /// The PyTorch equivalent is `-torch.cdist(q, p) ** 2`.
    #[default]
    SquaredEuclidean,
    /// Cosine of the angle, from -1 to 1; zero for a vector of zeros.
    ///
    /// The PyTorch equivalent is `F.normalize(q) @ F.normalize(p).T`.
    Cosine,
}

/// No metric has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric {name}, there are squared-euclidean and cosine")]
pub struct UnknownMetric {
    /// The unknown name.
    pub name: String,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SquaredEuclidean => "squared-euclidean",
            Self::Cosine => "cosine",
        })
    }
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Self, UnknownMetric> {
        match text {
            "squared-euclidean" | "euclidean" => Ok(Self::SquaredEuclidean),
            "cosine" => Ok(Self::Cosine),
            _ => Err(UnknownMetric { name: text.to_owned() }),
        }
    }
}

/// Similarity of every query to every prototype; larger is closer.
///
/// # Shapes
/// - `queries`: `[t, q, d]`
/// - `prototypes`: `[t, ways, d]`
/// - returns `[t, q, ways]`
pub fn scores<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    metric: Metric,
) -> Tensor<B, 3> {
    check_prototypes(queries.dims(), prototypes.dims());
    match table::<B>("scores", &[&queries, &prototypes]) {
        Some(table) => wrap((table.scores)(metric, [queries, prototypes].map(unwrap))),
        None => reference::scores(queries, prototypes, metric),
    }
}

/// The squared Euclidean distance of every query to every prototype, or one less their cosine.
///
/// # Shapes
/// The same as those of [`scores`].
pub fn distances<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    metric: Metric,
) -> Tensor<B, 3> {
    let far = scores(queries, prototypes, metric).neg();
    match metric {
        Metric::SquaredEuclidean => far,
        Metric::Cosine => far + 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_as_they_are_written() {
        for metric in [Metric::SquaredEuclidean, Metric::Cosine] {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        assert!("manhattan".parse::<Metric>().is_err());
    }
}
