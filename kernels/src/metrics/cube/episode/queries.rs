//! Scores and softmax of each query.

use cubecl::prelude::*;

use super::super::forms::{score, square_of};
use super::{Sizes, Wanted};
use crate::cube::{cube_max, cube_sum, lane_sum, wide};
use crate::distances::Metric;

/// Writes the scores of a query, whose vectors begin at `own`, with the classes of its task.
#[cube]
fn write_scores<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    means: &Array<Vector<f32, N>>,
    of_classes: &Array<f32>,
    scores: &mut SharedMemory<f32>,
    parts: &mut SharedMemory<f32>,
    own: usize,
    first_class: usize,
    square: f32,
    sizes: &Sizes,
    least: f32,
    #[comptime] metric: Metric,
    #[comptime] units: u32,
    #[comptime] capacity: u32,
) {
    // So many classes are multiplied with at once, and so many units share one.
    let abreast = comptime!((if capacity < units { capacity } else { units }) as usize);
    let group = comptime!((units / if capacity < units { capacity } else { units }) as usize);
    let unit = UNIT_POS as usize;
    let (place, lane) = (unit / group, unit % group);
    let mut first = 0usize;
    while first < sizes.ways {
        let way = first + place;
        let mut product = 0.0f32;
        if way < sizes.ways {
            let mean = (first_class + way) * sizes.vectors;
            let mut at = lane;
            while at < sizes.vectors {
                product += lane_sum(wide(x[own + at]) * means[mean + at]);
                at += group;
            }
        }
        parts[unit] = product;
        sync_cube();
        if lane == 0 && way < sizes.ways {
            for other in 1..group {
                product += parts[unit + other];
            }
            scores[way] = score(product, square, of_classes[first_class + way], least, metric);
        }
        sync_cube();
        first += abreast;
    }
}

/// The softmax of the scores of a query.
#[derive(CubeType, Clone, Copy)]
struct Softmax {
    /// The largest score times the scale.
    largest: f32,
    /// The sum of exponentials of what scores times the scale are apart from that.
    sum: f32,
    /// The first class with the largest score, as a float.
    nearest: f32,
}

#[cube]
fn softmax(
    scores: &SharedMemory<f32>,
    ways: usize,
    scale: f32,
    #[comptime] units: u32,
    #[comptime] capacity: u32,
) -> Softmax {
    let mut largest = f32::min_value();
    let mut way = UNIT_POS as usize;
    while way < ways {
        largest = max(largest, scores[way] * scale);
        way += comptime!(units as usize);
    }
    let largest = cube_max(largest, units);
    let mut sum = 0.0f32;
    // Negative, so that the first is the largest.
    let mut nearest = comptime!(-(capacity as f32)).runtime();
    let mut way = UNIT_POS as usize;
    while way < ways {
        let value = scores[way] * scale;
        sum += f32::exp(value - largest);
        if value == largest {
            nearest = max(nearest, 0.0f32 - way as f32);
        }
        way += comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    Softmax { largest, sum, nearest: 0.0f32 - cube_max(nearest, units) }
}

/// A cube for each query: its scores, their softmax, and the gradient of its loss by them, divided by the scale.
#[cube(launch_unchecked)]
pub fn queries_kernel<F: Float, I: Int, N: Size>(
    x: &Array<Vector<F, N>>,
    labels: &Array<I>,
    means: &Array<Vector<f32, N>>,
    of_classes: &Array<f32>,
    of_queries: &mut Array<f32>,
    losses: &mut Array<f32>,
    correct: &mut Array<f32>,
    weights: &mut Array<f32>,
    pulls: &mut Array<f32>,
    rows: usize,
    sizes: &Sizes,
    scale: f32,
    least: f32,
    nan: f32,
    #[comptime] options: Wanted,
    #[comptime] capacity: u32,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let Wanted { metric, gradient, units } = comptime!(options);
    let task = row / sizes.queries;
    let own = sizes.row(task, sizes.examples + row % sizes.queries);
    let (ways, first) = (sizes.ways, task * sizes.ways);
    let mut scores = SharedMemory::<f32>::new(comptime!(capacity as usize));
    let mut parts = SharedMemory::<f32>::new(comptime!(units as usize));
    let square = square_of::<F, N>(x, own, sizes.vectors, &mut parts, units);
    write_scores::<F, N>(
        x,
        means,
        of_classes,
        &mut scores,
        &mut parts,
        own,
        first,
        square,
        sizes,
        least,
        metric,
        units,
        capacity,
    );
    let Softmax { largest, sum, nearest } = softmax(&scores, ways, scale, units, capacity);
    let label = i32::cast_from(labels[row]);
    if UNIT_POS == 0 {
        let mut at_label = nan;
        if label >= 0 && label < ways as i32 {
            at_label = scores[label as usize] * scale - largest;
        }
        of_queries[row] = square;
        losses[row] = f32::ln(sum) - at_label;
        correct[row] = f32::cast_from(nearest == label as f32);
    }
    if comptime!(gradient) {
        let mut way = UNIT_POS as usize;
        while way < ways {
            let score = scores[way];
            let mut weight = f32::exp(score * scale - largest) / sum;
            if way as i32 == label {
                weight -= 1.0f32;
            }
            weights[row * ways + way] = weight;
            if comptime!(metric == Metric::Cosine) {
                pulls[row * ways + way] = weight * score;
            }
            way += comptime!(units as usize);
        }
    }
}
