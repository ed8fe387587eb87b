//! What becomes of the products: scores, losses, or given gradients of the scores.

use std::ops::Range;

use super::Dims;
use super::block::Block;
use super::passes::{QueryBuffers, Work, pass};
use crate::cpu::instruction_set::InstructionSet;
use crate::cpu::softmax::{Rows, Scoring};
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

struct Scores {
    metric: Metric,
    ways: usize,
}

impl Work for Scores {
    fn scoring(&self) -> (Metric, f32) {
        (self.metric, 1.0)
    }

    fn width(&self) -> usize {
        self.ways
    }

    fn gradient(&self) -> bool {
        false
    }

    fn with_lengths(&self) -> bool {
        true
    }

    fn with_queries(&self) -> bool {
        false
    }

    fn finish_queries(&self, _: Range<usize>, block: &Block<'_>, to: QueryBuffers<'_>) {
        let of_row = row_scale(self.metric, to.lengths);
        for (row, out) in to.out.chunks_exact_mut(self.ways).enumerate() {
            let shift = match self.metric {
                Metric::SquaredEuclidean => to.lengths[row].0,
                Metric::Cosine => 0.0,
            };
            for (way, out) in out.iter_mut().enumerate() {
                let product = to.products[block.at(row, way)];
                let of_way = &block.prepared;
                *out = product * of_way.scale[way] * of_row[row] - shift + of_way.shift[way];
            }
        }
    }
}

/// Scores `[tasks, queries, ways]`.
pub fn scores(
    body: &dyn InstructionSet,
    metric: Metric,
    [queries, prototypes]: [&[f32]; 2],
    dims: Dims,
) -> Vec<f32> {
    pass(body, queries, prototypes, dims, &Scores { metric, ways: dims.ways }).out
}

struct Tilt<'a> {
    metric: Metric,
    ways: usize,
    /// Gradient by the scores of all queries.
    g: &'a [f32],
}

impl Work for Tilt<'_> {
    fn scoring(&self) -> (Metric, f32) {
        (self.metric, 1.0)
    }

    fn width(&self) -> usize {
        0
    }

    fn gradient(&self) -> bool {
        true
    }

    fn with_lengths(&self) -> bool {
        self.metric == Metric::Cosine
    }

    fn with_queries(&self) -> bool {
        true
    }

    fn finish_queries(&self, queries: Range<usize>, block: &Block<'_>, to: QueryBuffers<'_>) {
        let of_row = row_scale(self.metric, to.lengths);
        let g = &self.g[queries.start * self.ways..queries.end * self.ways];
        to.row_sums.fill(0.0);
        for (row, g) in g.chunks_exact(self.ways).enumerate() {
            for (way, &g) in g.iter().enumerate() {
                let product = &mut to.products[block.at(row, way)];
                let factor = block.prepared.scale[way] * of_row[row];
                let term = match self.metric {
                    Metric::SquaredEuclidean => g,
                    Metric::Cosine => g * (*product * factor),
                };
                to.row_sums[row] += term;
                to.column_sums[way] += term;
                *product = g * factor;
            }
        }
    }
}

/// The gradients of `<g, scores>` by queries and by prototypes.
pub fn scores_gradients(
    body: &dyn InstructionSet,
    metric: Metric,
    g: &[f32],
    [queries, prototypes]: [&[f32]; 2],
    dims: Dims,
) -> [Vec<f32>; 2] {
    let work = Tilt { metric, ways: dims.ways, g };
    pass(body, queries, prototypes, dims, &work).gradients.expect("a tilt has gradients")
}

struct Loss<'a> {
    call: LossCall,
    labels: &'a [usize],
    gradient: bool,
}

impl Work for Loss<'_> {
    fn scoring(&self) -> (Metric, f32) {
        (self.call.metric, self.call.scale as f32)
    }

    fn width(&self) -> usize {
        2
    }

    fn gradient(&self) -> bool {
        self.gradient
    }

    fn with_lengths(&self) -> bool {
        self.call.metric == Metric::Cosine
    }

    fn with_queries(&self) -> bool {
        // For squared distances, the gradients by the scores of a query add up to zero.
        self.call.metric == Metric::Cosine
    }

    fn finish_queries(&self, queries: Range<usize>, block: &Block<'_>, to: QueryBuffers<'_>) {
        let metric = self.call.metric;
        let of_row = row_scale(metric, to.lengths);
        let prepared = block.prepared;
        block.body.softmax_scores(&mut Rows {
            products: to.products,
            scoring: Scoring { scale: &prepared.scale, shift: &prepared.shift, row_scale: &of_row },
            labels: &self.labels[queries],
            weight: 1.0 / self.labels.len() as f32,
            gradient: self.gradient,
            outcome: to.out,
            row_sums: to.row_sums,
            column_sums: to.column_sums,
            by_score: metric == Metric::Cosine,
            scratch: &mut vec![0.0; prepared.scale.len()],
        });
    }
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
    [queries, prototypes]: [&[f32]; 2],
    labels: &[usize],
    dims: Dims,
    gradient: bool,
) -> Found {
    let passed = pass(body, queries, prototypes, dims, &Loss { call, labels, gradient });
    let losses = passed.out.iter().step_by(2).map(|&loss| f64::from(loss));
    Found {
        loss: (losses.sum::<f64>() / labels.len() as f64) as f32,
        correct: passed.out.iter().skip(1).step_by(2).copied().collect(),
        gradients: passed.gradients,
    }
}
