//! The softmax over the scores of each query, its loss, and the gradient of that.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::forms::{Forms, score};
use super::gradients::gradients;
use crate::cube::{cube_sum, elementwise, empty, grid, launch, unit_below, units};
use crate::distances::Metric;
use crate::distances::reference::LEAST_SQUARE;
use crate::metrics::LossOutput;

/// A unit for each query: three passes over its few scores, which are made anew in each.
#[cube(launch_unchecked)]
fn rows_kernel<F: Float, I: Int>(
    products: &Array<f32>,
    of_queries: &Array<f32>,
    of_prototypes: &Array<f32>,
    labels: &Array<I>,
    losses: &mut Array<f32>,
    correct: &mut Array<F>,
    by_queries: &mut Array<f32>,
    by_prototypes: &mut Array<f32>,
    rows: usize,
    queries: usize,
    ways: usize,
    scale: f32,
    least: f32,
    nan: f32,
    #[comptime] metric: Metric,
    #[comptime] weighted: bool,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let row = unit_below(rows);
    let label = i32::cast_from(labels[row]);
    let (first, to, of_query) = (row * ways, row / queries * ways, of_queries[row]);
    let mut largest = score(products[first], of_query, of_prototypes[to], least, metric) * scale;
    let mut nearest = 0i32;
    for way in 1..ways {
        let value = score(products[first + way], of_query, of_prototypes[to + way], least, metric);
        let value = value * scale;
        if value > largest {
            largest = value;
            nearest = way as i32;
        }
    }
    let mut sum = 0.0f32;
    let mut at_label = nan;
    for way in 0..ways {
        let value = score(products[first + way], of_query, of_prototypes[to + way], least, metric);
        let value = value * scale - largest;
        sum += f32::exp(value);
        if way as i32 == label {
            at_label = value;
        }
    }
    losses[row] = f32::ln(sum) - at_label;
    correct[row] = F::cast_from(nearest == label);
    if weighted {
        for way in 0..ways {
            let of_prototype = of_prototypes[to + way];
            let value = score(products[first + way], of_query, of_prototype, least, metric);
            let mut weight = f32::exp(value * scale - largest) / sum;
            if way as i32 == label {
                weight -= 1.0f32;
            }
            if comptime!(metric == Metric::Cosine) {
                let by_query = weight / f32::sqrt(max(of_prototype, least));
                let by_prototype = weight / f32::sqrt(max(of_query, least));
                by_queries[first + way] = by_query;
                by_prototypes[first + way] = by_prototype;
            } else {
                by_queries[first + way] = weight;
            }
        }
    }
}

/// One cube: the mean of all.
#[cube(launch_unchecked)]
fn mean_kernel<F: Float>(
    losses: &Array<f32>,
    loss: &mut Array<F>,
    count: usize,
    share: f32,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let mut sum = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < count {
        sum += losses[at];
        at += comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        loss[0] = F::cast_from(sum * share);
    }
}

/// The loss of all queries, whose labels are contiguous, with its gradients if they are wanted.
pub fn loss<R: CubeRuntime>(
    forms: &Forms<R>,
    labels: CubeTensor<R>,
    scale: f64,
    gradients_wanted: bool,
) -> LossOutput<CubeTensor<R>> {
    let Forms { metric, of: [of, _], products, squares } = forms;
    let client = &of.client;
    let (rows, [queries, ways]) = (forms.queries(), forms.sizes());
    let losses = empty(of, [rows], DType::F32);
    let correct = empty(of, labels.meta.shape().clone(), of.dtype);
    let loss = empty(of, [1], of.dtype);
    let weights = |is_written: bool| {
        let shape = if is_written { products.meta.shape().clone() } else { [1].into() };
        empty(of, shape, DType::F32)
    };
    let by_queries = weights(gradients_wanted);
    let by_prototypes = weights(gradients_wanted && *metric == Metric::Cosine);
    let [of_queries, of_prototypes] = squares;
    let units = units(client);
    // SAFETY: products and the weights that are wanted have `ways` elements for each of the `rows`,
    // squares one for each query and each prototype, labels, losses and flags one a row, and units
    // stop there.
    unsafe {
        launch!(rows_kernel, elementwise(client, rows);
            products, of_queries, of_prototypes, labels, losses, correct, by_queries, by_prototypes;
            rows, queries, ways, scale as f32, LEAST_SQUARE as f32, f32::NAN, *metric,
            gradients_wanted, of.dtype.into(), labels.dtype.into());
        launch!(mean_kernel, grid(client, [1, 1, 1], units);
            losses, loss; rows, 1.0 / rows as f32, units, of.dtype.into());
    }
    let gradients = gradients_wanted.then(|| {
        let weights = match metric {
            Metric::SquaredEuclidean => [by_queries.clone(), by_queries],
            Metric::Cosine => [by_queries, by_prototypes],
        };
        gradients(forms, weights, scale / rows as f64)
    });
    LossOutput { loss, correct, gradients }
}
