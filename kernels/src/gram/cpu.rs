//! The matrices over slices of host memory.

use rayon::prelude::*;

use crate::cpu::buffers::Buffer;
use crate::cpu::contract::{Contraction, RowOffsets, Run};
use crate::cpu::instruction_set::InstructionSet;
use crate::weighted_sums::tiles;

/// The products among `size` rows of `x` at a time, whose numbers are `rows`.
///
/// A thread copies the rows of a task to where they stay in its cache. Every sum is made from the first
/// feature to the last, so the result does not depend on the number of threads.
pub fn gram(
    body: &dyn InstructionSet,
    x: &[f32],
    features: usize,
    rows: &[usize],
    size: usize,
) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() * size];
    if features == 0 {
        return out;
    }
    let of_tasks = out.par_chunks_exact_mut(size * size).zip(rows.par_chunks_exact(size));
    of_tasks.for_each(|(out, rows)| {
        let mut own = Buffer::stale(size * features);
        for (own, row) in own.chunks_exact_mut(features).zip(rows) {
            own.copy_from_slice(&x[row * features..][..features]);
        }
        gram_of(body, &own, features, out);
    });
    out
}

/// Of one task: tiles of columns, each with the rows from its own first one on, and mirrored.
fn gram_of(body: &dyn InstructionSet, x: &[f32], features: usize, out: &mut [f32]) {
    let (rows, tile) = (x.len() / features, body.tile());
    let packed = tiles(body, x, features);
    let mut products = Buffer::stale(rows * tile);
    for (place, b) in packed.chunks_exact(tile * features).enumerate() {
        let first = place * tile;
        let starts: Vec<usize> = (first * features..x.len()).step_by(features).collect();
        let job = Contraction {
            a: x,
            rows: &starts,
            b,
            runs: &[Run { a: 0, b: 0, len: features }],
            a_step: 1,
            b_step: tile,
            to: RowOffsets::Strided(tile),
            accumulate: false,
        };
        body.contract(&job, &mut products[..starts.len() * tile]);
        for (row, products) in (first..rows).zip(products.chunks_exact(tile)) {
            let columns = tile.min(row + 1 - first);
            for (column, product) in (first..).zip(&products[..columns]) {
                out[row * rows + column] = *product;
                out[column * rows + row] = *product;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::instruction_set::bodies;

    #[test]
    fn every_shape_has_the_products_of_its_rows() {
        // Small integers, so that sums do not depend on their order.
        let integer = |i: usize| ((i * 37 + 101) % 23) as f32 - 11.0;
        for (rows, features) in
            [1, 2, 15, 16, 17, 31, 33, 64, 80].into_iter().flat_map(|m| [1, 7, 64].map(|d| (m, d)))
        {
            let x: Vec<f32> = (0..29 * features).map(integer).collect();
            let picked: Vec<usize> = (0..3 * rows).map(|i| i * 11 % 29).collect();
            let of_task = |picked: &[usize]| -> Vec<f32> {
                let x: Vec<_> = picked.iter().map(|row| &x[row * features..][..features]).collect();
                let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum();
                x.iter().flat_map(|a| x.iter().map(|b| dot(a, b)).collect::<Vec<_>>()).collect()
            };
            let wanted: Vec<f32> = picked.chunks(rows).flat_map(of_task).collect();
            for body in bodies() {
                let found = gram(body, &x, features, &picked, rows);
                assert_eq!(found, wanted, "{} {rows} of {features}", body.name());
            }
        }
    }
}
