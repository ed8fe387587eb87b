//! The Mahalanobis distance.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::linear::product;
use crate::metrics::check_prototypes;

/// The squared Mahalanobis distance `(q - p)^T M (q - p)` of every query to every prototype, with a
/// precision (the inverse of a covariance) for each task, or for each of its classes.
///
/// Plain Burn operations on every backend, nearly all of the work in matrix products.
///
/// # Shapes
/// - `queries`: `[t, q, d]`
/// - `prototypes`: `[t, ways, d]`
/// - `precision`: `[t, 1, d, d]` or `[t, ways, d, d]`; with one for each class, intermediate results
///   are `[t, ways, q, d]`
/// - returns `[t, q, ways]`
///
/// # Source
/// Bateni et al., "Improved Few-Shot Visual Classification", CVPR 2020 (Simple CNAPS), equation 2,
/// without its factor of one half.
pub fn mahalanobis<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    precision: Tensor<B, 4>,
) -> Tensor<B, 3> {
    check(queries.dims(), prototypes.dims(), precision.dims());
    if precision.dims()[1] == 1 {
        shared(queries, prototypes, precision.squeeze_dim(1))
    } else {
        per_class(queries, prototypes, precision)
    }
}

fn shared<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    precision: Tensor<B, 3>,
) -> Tensor<B, 3> {
    // A distance does not change with the origin; near the prototypes, fewer digits cancel.
    let origin = prototypes.clone().mean_dim(1);
    let (queries, prototypes) = (queries - origin.clone(), prototypes - origin);
    let [of_queries, of_prototypes] =
        [&queries, &prototypes].map(|x| product(x.clone(), precision.clone()));
    let length = |x: &Tensor<B, 3>, mapped: &Tensor<B, 3>| (x.clone() * mapped.clone()).sum_dim(2);
    let lengths =
        length(&queries, &of_queries) + length(&prototypes, &of_prototypes).swap_dims(1, 2);
    let crossed = product(of_queries, prototypes.swap_dims(1, 2))
        + product(queries, of_prototypes.swap_dims(1, 2));
    lengths - crossed
}

fn per_class<B: Backend>(
    queries: Tensor<B, 3>,
    prototypes: Tensor<B, 3>,
    precision: Tensor<B, 4>,
) -> Tensor<B, 3> {
    let [tasks, ways, _] = prototypes.dims();
    let count = queries.dims()[1];
    let difference = queries.unsqueeze_dim::<4>(1) - prototypes.unsqueeze_dim(2);
    let mapped = product(difference.clone(), precision);
    (mapped * difference).sum_dim(3).reshape([tasks, ways, count]).swap_dims(1, 2)
}

fn check(queries: [usize; 3], prototypes: [usize; 3], precision: [usize; 4]) {
    check_prototypes(queries, prototypes);
    let [tasks, ways, features] = prototypes;
    let fits = |matrices| precision == [tasks, matrices, features, features];
    assert!(
        fits(1) || fits(ways),
        "prototypes {prototypes:?} need a precision [{tasks}, 1 or {ways}, {features}, {features}], \
         found {precision:?}"
    );
}
