//! The gradients by queries and by prototypes.
//!
//! Both are `a * (W x' - c * x)` by rows, with `x'` the other side's vectors. Of the squared distance
//! `a` is 2 and `c` the sum of a row of `W`. Of the cosine, `W` is the gradient of the scores divided
//! by the lengths of the other side, `a` is one over the own length and `c` the sum of `W` times the
//! products over the own squared length, or zero where that is too small to turn with.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::ops::permute;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::forms::{Forms, Weights};
use crate::cube::{
    elementwise, empty, empty_like, launch, owned, product, unit_below, vector_size, wide,
};
use crate::distances::Metric;
use crate::distances::reference::LEAST_SQUARE;

/// Whose gradient it is: the weights of a query lie in a row, those of a prototype in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Queries,
    Prototypes,
}

/// A unit for each row: `c`.
#[cube(launch_unchecked)]
fn pulls_kernel(
    weights: &Array<f32>,
    products: &Array<f32>,
    squares: &Array<f32>,
    pulls: &mut Array<f32>,
    rows: usize,
    queries: usize,
    ways: usize,
    least: f32,
    #[comptime] metric: Metric,
    #[comptime] side: Side,
) {
    let row = unit_below(rows);
    let mut at = row * ways;
    let mut step = 1usize;
    let mut count = ways;
    if comptime!(side == Side::Prototypes) {
        at = row / ways * ways * queries + row % ways;
        step = ways;
        count = queries;
    }
    let mut sum = 0.0f32;
    for _ in 0..count {
        let weight = weights[at];
        if comptime!(metric == Metric::Cosine) {
            sum += weight * products[at];
        } else {
            sum += weight;
        }
        at += step;
    }
    if comptime!(metric == Metric::Cosine) {
        let square = squares[row];
        if square >= least {
            sum = sum / square;
        } else {
            sum = 0.0f32;
        }
    }
    pulls[row] = sum;
}

/// A unit for each vector of the gradient.
#[cube(launch_unchecked)]
fn gradient_kernel<F: Float, N: Size>(
    turned: &Array<Vector<f32, N>>,
    x: &Array<Vector<F, N>>,
    squares: &Array<f32>,
    pulls: &Array<f32>,
    out: &mut Array<Vector<F, N>>,
    vectors: usize,
    row: usize,
    factor: f32,
    least: f32,
    #[comptime] metric: Metric,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(vectors);
    let of = at / row;
    let mut along = factor * 2.0f32;
    if comptime!(metric == Metric::Cosine) {
        along = factor / f32::sqrt(max(squares[of], least));
    }
    let x = Vector::<f32, N>::cast_from(x[at]);
    let value = (turned[at] - x * Vector::new(pulls[of])) * Vector::new(along);
    out[at] = Vector::cast_from(value);
}

/// `factor` times the gradients of the scores with these weights.
pub fn gradients<R: CubeRuntime>(
    forms: &Forms<R>,
    weights: Weights<R>,
    factor: f64,
) -> [CubeTensor<R>; 2] {
    let [by_queries, by_prototypes] = weights;
    let [queries, prototypes] = forms.of.clone();
    let of_queries = product(by_queries.clone(), prototypes, DType::F32);
    let of_prototypes = product(permute(by_prototypes.clone(), &[0, 2, 1]), queries, DType::F32);
    [
        gradient(forms, Side::Queries, by_queries, of_queries, factor),
        gradient(forms, Side::Prototypes, by_prototypes, of_prototypes, factor),
    ]
}

fn gradient<R: CubeRuntime>(
    forms: &Forms<R>,
    side: Side,
    weights: CubeTensor<R>,
    turned: CubeTensor<R>,
    factor: f64,
) -> CubeTensor<R> {
    let (x, squares) = (&forms.of[side as usize], &forms.squares[side as usize]);
    let [tasks, rows, features] = x.meta.shape().dims();
    let (rows, [queries, ways]) = (tasks * rows, forms.sizes());
    let pulls = empty(x, [rows], DType::F32);
    let out = empty_like(x);
    let width = vector_size(&x.client, features, size_of::<f32>());
    let vectors = rows * features / width;
    // SAFETY: weights and products have `ways` elements for each query of each task; squares and
    // pulls have one a row; `turned`, `x` and `out` have `features` a row, which is whole vectors;
    // units stop at the last row and at the last vector.
    unsafe {
        launch!(pulls_kernel, elementwise(&x.client, rows);
            weights, forms.products, squares, pulls;
            rows, queries, ways, LEAST_SQUARE as f32, forms.metric, side);
        launch!(gradient_kernel, elementwise(&x.client, vectors), width;
            turned, x, squares, pulls, out;
            vectors, features / width, factor as f32, LEAST_SQUARE as f32, forms.metric,
            x.dtype.into());
    }
    out
}

/// A unit for each vector.
#[cube(launch_unchecked)]
fn scaled_kernel<F: Float, G: Float, N: Size>(
    x: &mut Array<Vector<F, N>>,
    factor: &Array<G>,
    vectors: usize,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let at = unit_below(vectors);
    let value = wide(x[at]) * Vector::new(f32::cast_from(factor[0]));
    x[at] = Vector::cast_from(value);
}

/// `x` times a factor `[1]`, in the place of `x` if nobody else has it.
pub fn scaled<R: CubeRuntime>(x: CubeTensor<R>, factor: CubeTensor<R>) -> CubeTensor<R> {
    let elements = x.meta.num_elements();
    if elements == 0 {
        return x;
    }
    let x = owned(x);
    let width = vector_size(&x.client, elements, x.elem_size());
    // SAFETY: `x` has `elements`, whole vectors, and units stop at the last one.
    unsafe {
        launch!(scaled_kernel, elementwise(&x.client, elements / width), width;
            x, factor; elements / width, [x.dtype, factor.dtype].map(Into::into));
    }
    x
}
