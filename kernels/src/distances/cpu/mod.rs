//! Scores, losses and their gradients over slices.
//!
//! Three contractions over blocks of queries, with the queries read from memory once: products
//! with the prototypes, and from the gradient by the products those by queries and by prototypes.
//! Both metrics are of one form,
//!
//! `score = product * scale[prototype] * row_scale[query] + shift`,
//!
//! and so are their gradients, `g @ prototypes + alpha * queries` and `g^T @ queries + beta *
//! prototypes`, where `alpha` and `beta` are numbers by row.
//!
//! The queries of a task are cut into slots by their number alone. Each has its own sum for the
//! gradient by prototypes, and these are added in order, so the results do not depend on the number
//! of threads.

mod block;
mod passes;
#[cfg(test)]
mod tests;
mod work;

pub use work::{Found, loss, scores, scores_gradients};

use std::ops::Range;

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    pub tasks: usize,
    pub queries: usize,
    pub ways: usize,
    pub features: usize,
}

/// Queries that go through all contractions while they are in cache.
const BLOCK: usize = 48;

/// Multiplications that are worth a second thread.
const TASK: usize = 1 << 18;

impl Dims {
    /// The slots of one task.
    fn slots(&self) -> Vec<Range<usize>> {
        let count = self.queries.div_ceil(BLOCK).min(16);
        (0..count).map(|i| i * self.queries / count..(i + 1) * self.queries / count).collect()
    }

    /// True if there is enough work for several threads.
    fn in_parallel(&self) -> bool {
        self.tasks * self.queries * self.ways * self.features > TASK
    }
}

/// The sum of the squares, and the inverse of the root of it, with `F.normalize`'s least length.
fn lengths(row: &[f32]) -> (f32, f32) {
    // In lanes, which the compiler makes vectors of.
    let mut lanes = [0.0f32; 16];
    let mut chunks = row.chunks_exact(lanes.len());
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x * x);
    }
    lanes.iter_mut().zip(chunks.remainder()).for_each(|(sum, x)| *sum += x * x);
    let square: f32 = lanes.iter().sum();
    (square, 1.0 / square.max(super::reference::LEAST_SQUARE as f32).sqrt())
}
