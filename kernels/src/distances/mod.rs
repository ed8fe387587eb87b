//! How close queries are to prototypes.

pub(crate) mod cpu;
mod mahalanobis;
mod metric;
pub mod reference;

pub use mahalanobis::mahalanobis;
pub use metric::{Metric, UnknownMetric};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{unwrap, wrap};
use crate::metrics::{check_prototypes, table};

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
/// As those of [`scores`].
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
