//! Scores and their gradients in plain Burn operations, with products in full f32 on accelerators too.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::Metric;
use crate::linear::product;

/// Least square of a length that a cosine divides by: that of `F.normalize`.
pub const LEAST_SQUARE: f64 = 1e-24;

/// Scores `[t, q, ways]` of `queries` `[t, q, d]` and `prototypes` `[t, ways, d]`.
pub fn scores<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    metric: Metric,
) -> Tensor<B, 3> {
    match metric {
        Metric::SquaredEuclidean => {
            let of_queries = squares(queries.clone());
            let of_prototypes = squares(prototypes.clone()).swap_dims(1, 2);
            let products = product(queries, prototypes.swap_dims(1, 2));
            products * 2.0 - of_queries - of_prototypes
        }
        Metric::Cosine => product(unit(queries), unit(prototypes).swap_dims(1, 2)),
    }
}

/// The gradients of `<g, scores(queries, prototypes)>` by queries and by prototypes.
pub fn scores_gradients<B: Backend>(
    g: Tensor<B, 3>,
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    metric: Metric,
) -> [Tensor<B, 3>; 2] {
    let (along, across) = (g.clone(), g.swap_dims(1, 2));
    match metric {
        Metric::SquaredEuclidean => {
            let pull = |g: Tensor<B, 3>, x: Tensor<B, 3>, other: Tensor<B, 3>| {
                (product(g.clone(), other) - g.sum_dim(2) * x) * 2.0
            };
            let by_queries = pull(along, queries.clone(), prototypes.clone());
            [by_queries, pull(across, prototypes, queries)]
        }
        Metric::Cosine => {
            let units = [queries.clone(), prototypes.clone()].map(unit);
            let by_query = product(along, units[1].clone());
            let by_prototype = product(across, units[0].clone());
            let [of_query, of_prototype] = units;
            [
                through_unit(by_query, queries, of_query),
                through_unit(by_prototype, prototypes, of_prototype),
            ]
        }
    }
}

/// `[t, n, d]` to `[t, n, 1]`.
fn squares<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    (x.clone() * x).sum_dim(2)
}

fn length<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    // Clamped before the root, whose derivative at zero is infinite.
    squares(x).clamp_min(LEAST_SQUARE).sqrt()
}

fn unit<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    x.clone() / length(x)
}

/// The gradient by `x` of `<g, unit>`.
fn through_unit<B: Backend>(g: Tensor<B, 3>, x: Tensor<B, 3>, unit: Tensor<B, 3>) -> Tensor<B, 3> {
    let turns = squares(x.clone()).greater_equal_elem(LEAST_SQUARE).float().detach();
    let stretch = (g.clone() * unit.clone()).sum_dim(2) * turns;
    (g - unit * stretch) / length(x)
}
