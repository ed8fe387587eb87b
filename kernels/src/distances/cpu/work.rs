//! The uses of the products: scores, losses, or given gradients of the scores.

use std::ops::Range;

use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::softmax::{Rows, Scoring};

use super::Dims;
use super::block::Block;
use super::passes::{PassOptions, QueryBuffers, pass};
use crate::distances::Metric;
use crate::metrics::LossCall;

/// The factors of the scores by query.
fn row_scale(metric: Metric, lengths: &[(f32, f32)]) -> Vec<f32> {
    let factor = |&(_, inverse): &(f32, f32)| match metric {
        Metric::SquaredEuclidean => 1.0,
        Metric::Cosine => inverse,
    };
    lengths.iter().map(factor).collect()
}

/// Scores `[tasks, queries, ways]`.
pub fn scores(
    body: &dyn InstructionSet,
    metric: Metric,
    operands: [&[f32]; 2],
    dims: Dims,
) -> Vec<f32> {
    let options = PassOptions {
        scoring: (metric, 1.0),
        width: dims.ways,
        gradient: false,
        with_lengths: true,
        with_queries: false,
    };
    let finish = |_, block: &Block<'_>, to: QueryBuffers<'_>| {
        let of_row = row_scale(metric, to.lengths);
        for (row, out) in to.out.chunks_exact_mut(dims.ways).enumerate() {
            let shift = match metric {
                Metric::SquaredEuclidean => to.lengths[row].0,
                Metric::Cosine => 0.0,
            };
            for (way, out) in out.iter_mut().enumerate() {
                let product = to.products[block.at(row, way)];
                let of_way = &block.prepared;
                *out = product * of_way.scale[way] * of_row[row] - shift + of_way.shift[way];
            }
        }
    };
    pass(body, operands, dims, options, finish).out
}

/// The gradients of `<g, scores>` by queries and by prototypes.
pub fn scores_gradients(
    body: &dyn InstructionSet,
    metric: Metric,
    g: &[f32],
    operands: [&[f32]; 2],
    dims: Dims,
) -> [Vec<f32>; 2] {
    let options = PassOptions {
        scoring: (metric, 1.0),
        width: 0,
        gradient: true,
        with_lengths: metric == Metric::Cosine,
        with_queries: true,
    };
    let finish = |queries: Range<usize>, block: &Block<'_>, to: QueryBuffers<'_>| {
        let of_row = row_scale(metric, to.lengths);
        let g = &g[queries.start * dims.ways..queries.end * dims.ways];
        to.row_sums.fill(0.0);
        for (row, g) in g.chunks_exact(dims.ways).enumerate() {
            for (way, &g) in g.iter().enumerate() {
                let product = &mut to.products[block.at(row, way)];
                let factor = block.prepared.scale[way] * of_row[row];
                let term = match metric {
                    Metric::SquaredEuclidean => g,
                    Metric::Cosine => g * (*product * factor),
                };
                to.row_sums[row] += term;
                to.column_sums[way] += term;
                *product = g * factor;
            }
        }
    };
    pass(body, operands, dims, options, finish).gradients.expect("as asked")
}

/// The mean loss, which queries are right, and the gradients where wanted.
pub struct Found {
    pub loss: f32,
    /// `[tasks, queries]`.
    pub correct: Vec<f32>,
    /// By queries and by prototypes.
    pub gradients: Option<[Vec<f32>; 2]>,
}

/// The mean over all queries of `-log softmax(scale * scores)` at their labels.
pub fn loss(
    body: &dyn InstructionSet,
    call: LossCall,
    operands: [&[f32]; 2],
    labels: &[usize],
    dims: Dims,
    gradient: bool,
) -> Found {
    let (metric, cosine) = (call.metric, call.metric == Metric::Cosine);
    let options = PassOptions {
        scoring: (metric, call.scale as f32),
        width: 2,
        gradient,
        with_lengths: cosine,
        // For squared distances, the gradients by the scores of a query add up to zero.
        with_queries: cosine,
    };
    let finish = |queries: Range<usize>, block: &Block<'_>, to: QueryBuffers<'_>| {
        let of_row = row_scale(metric, to.lengths);
        let prepared = block.prepared;
        block.body.softmax_scores(&mut Rows {
            products: to.products,
            scoring: Scoring { scale: &prepared.scale, shift: &prepared.shift, row_scale: &of_row },
            labels: &labels[queries],
            weight: 1.0 / labels.len() as f32,
            gradient,
            outcome: to.out,
            row_sums: to.row_sums,
            column_sums: to.column_sums,
            by_score: cosine,
            scratch: &mut vec![0.0; prepared.scale.len()],
        });
    };
    let passed = pass(body, operands, dims, options, finish);
    let losses = passed.out.iter().step_by(2).map(|&loss| f64::from(loss));
    Found {
        loss: (losses.sum::<f64>() / labels.len() as f64) as f32,
        correct: passed.out.iter().skip(1).step_by(2).copied().collect(),
        gradients: passed.gradients,
    }
}
