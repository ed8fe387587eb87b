//! The gradient of the embeddings, and the means of loss and accuracy.

use cubecl::prelude::*;

use super::{Sizes, Wanted};
use crate::cube::{cube_sum, wide};
use crate::distances::Metric;

/// The means of losses and flags, by one cube.
#[cube]
fn write_means<F: Float>(
    losses: &Array<f32>,
    correct: &Array<f32>,
    loss: &mut Array<F>,
    accuracy: &mut Array<F>,
    rows: usize,
    #[comptime] units: u32,
) {
    let mut of_losses = 0.0f32;
    let mut of_correct = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < rows {
        of_losses += losses[at];
        of_correct += correct[at];
        at += comptime!(units as usize);
    }
    let of_losses = cube_sum(of_losses, units);
    let of_correct = cube_sum(of_correct, units);
    if UNIT_POS == 0 {
        loss[0] = F::cast_from(of_losses / rows as f32);
        accuracy[0] = F::cast_from(of_correct / rows as f32);
    }
}

/// The gradient of which row a cube finds, and the weights `count` of which go into it.
#[derive(CubeType, Clone, Copy)]
struct Side {
    /// True for a gradient of a query, false for one of a class.
    of_query: bool,
    task: usize,
    /// Among the classes of all tasks; of a query any.
    class: usize,
    first: usize,
    step: usize,
    count: usize,
}

#[cube]
fn side(cube: usize, rows: usize, sizes: &Sizes) -> Side {
    let (queries, ways) = (sizes.queries, sizes.ways);
    let of_query = cube < rows;
    let mut class = 0usize;
    let mut task = cube / queries;
    let mut first = cube * ways;
    let mut step = 1usize;
    let mut count = ways;
    if !of_query {
        class = cube - rows;
        task = class / ways;
        first = task * queries * ways + class % ways;
        step = ways;
        count = queries;
    }
    Side { of_query, task, class, first, step, count }
}

/// The sums over every `groups`th row of the other side, from `group` on: of `W x` at the vector `at`, and of what
/// `c` is made of.
#[cube]
fn part<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    means: &Array<Vector<f32, N>>,
    of_classes: &Array<f32>,
    of_queries: &Array<f32>,
    weights: &Array<f32>,
    pulls: &Array<f32>,
    side: &Side,
    sizes: &Sizes,
    at: usize,
    group: usize,
    least: f32,
    #[comptime] groups: usize,
    #[comptime] metric: Metric,
) -> (Vector<f32, N>, f32) {
    let mut sum = Vector::<f32, N>::new(0.0f32);
    let mut pull = 0.0f32;
    let mut other = group;
    while other < side.count {
        let index = side.first + other * side.step;
        let mut weight = weights[index];
        let mut pulled = weight;
        if comptime!(metric == Metric::Cosine) {
            pulled = pulls[index];
        }
        pull += pulled;
        if side.of_query {
            let from = side.task * sizes.ways + other;
            if comptime!(metric == Metric::Cosine) {
                weight = weight / f32::sqrt(max(of_classes[from], least));
            }
            sum += means[from * sizes.vectors + at] * Vector::new(weight);
        } else {
            if comptime!(metric == Metric::Cosine) {
                let square = of_queries[side.task * sizes.queries + other];
                weight = weight / f32::sqrt(max(square, least));
            }
            let query = sizes.row(side.task, sizes.examples + other);
            sum += wide(x[query + at]) * Vector::new(weight);
        }
        other += groups;
    }
    (sum, pull)
}

/// Writes a vector of the gradient of a class's mean to the rows of its examples, and zeros to those of no class.
#[cube]
fn write_to_examples<F: Float, I: Int, N: Size>(
    share: Vector<f32, N>,
    labels: &Array<I>,
    gradient: &mut Array<Vector<F, N>>,
    side: &Side,
    sizes: &Sizes,
    at: usize,
) {
    let way = (side.class % sizes.ways) as i32;
    let none = Vector::<f32, N>::new(0.0f32);
    for example in 0..sizes.examples {
        let label = i32::cast_from(labels[side.task * sizes.examples + example]);
        let to = sizes.row(side.task, example) + at;
        if label == way {
            gradient[to] = Vector::cast_from(share);
        } else if way == 0 && (label < 0 || label >= sizes.ways as i32) {
            gradient[to] = Vector::cast_from(none);
        }
    }
}

/// A cube for each query and each class, which go on to the gradients of the embeddings, and one for the means.
///
/// By rows the gradients of queries and of prototypes are `a * (sum_i W_i x_i - c * x)` over the vectors `x_i`
/// of the other side, with `a`, `W` and `c` as in [`super::super::gradients`].
#[cube(launch_unchecked)]
pub fn gradient_kernel<F: Float, I: Int, N: Size>(
    x: &Array<Vector<F, N>>,
    labels: &Array<I>,
    means: &Array<Vector<f32, N>>,
    of_classes: &Array<f32>,
    of_queries: &Array<f32>,
    counts: &Array<f32>,
    losses: &Array<f32>,
    correct: &Array<f32>,
    weights: &Array<f32>,
    pulls: &Array<f32>,
    gradient: &mut Array<Vector<F, N>>,
    loss: &mut Array<F>,
    accuracy: &mut Array<F>,
    rows: usize,
    gradients: usize,
    sizes: &Sizes,
    factor: f32,
    least: f32,
    #[comptime] options: Wanted,
    #[comptime] lanes: u32,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let cube = CUBE_POS;
    if cube > gradients {
        terminate!();
    }
    let Wanted { metric, gradient: wants_gradient, units } = comptime!(options);
    let unit = UNIT_POS as usize;
    if cube == gradients {
        write_means::<F>(losses, correct, loss, accuracy, rows, units);
    } else if comptime!(wants_gradient) {
        let side = side(cube, rows, sizes);
        let mut square = of_classes[side.class];
        if side.of_query {
            square = of_queries[cube];
        }
        let mut along = factor * 2.0f32;
        let mut turn = 1.0f32;
        if comptime!(metric == Metric::Cosine) {
            along = factor / f32::sqrt(max(square, least));
            turn = 0.0f32;
            if square >= least {
                turn = 1.0f32 / f32::sqrt(square);
            }
        }
        // So many units share a vector of the gradient.
        let groups = comptime!((units / lanes) as usize);
        let (lane, group) = (unit % comptime!(lanes as usize), unit / comptime!(lanes as usize));
        let mut parts = SharedMemory::<Vector<f32, N>>::new(comptime!(units as usize));
        let mut pull_parts = SharedMemory::<f32>::new(comptime!(units as usize));
        let mut start = 0usize;
        while start < sizes.vectors {
            let at = start + lane;
            let mut sum = Vector::<f32, N>::new(0.0f32);
            let mut pull = 0.0f32;
            if at < sizes.vectors {
                let (of_sum, of_pull) = part::<F, N>(
                    x, means, of_classes, of_queries, weights, pulls, &side, sizes, at, group,
                    least, groups, metric,
                );
                sum += of_sum;
                pull += of_pull;
            }
            parts[unit] = sum;
            pull_parts[unit] = pull;
            sync_cube();
            if group == 0 && at < sizes.vectors {
                for part in 1..groups {
                    let from = lane + part * comptime!(lanes as usize);
                    sum += parts[from];
                    pull += pull_parts[from];
                }
                let pull = Vector::new(pull * turn);
                let along = Vector::new(along);
                if side.of_query {
                    let query = sizes.examples + cube % sizes.queries;
                    let own = sizes.row(side.task, query) + at;
                    gradient[own] = Vector::cast_from((sum - wide(x[own]) * pull) * along);
                } else {
                    let mean = means[side.class * sizes.vectors + at];
                    let share = (sum - mean * pull) * along / Vector::new(counts[side.class]);
                    write_to_examples::<F, I, N>(share, labels, gradient, &side, sizes, at);
                }
            }
            sync_cube();
            start += comptime!(lanes as usize);
        }
    }
}
