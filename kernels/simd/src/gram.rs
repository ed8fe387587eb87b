//! Scalar products among rows.

use super::simd::{Simd, WIDEST};

/// Products of a block are those of at most so many rows with as many others.
const MOST: usize = 4;

/// Writes the scalar products `[m, m]` among the rows of `x`, `[m, features]`, of whole vectors each.
///
/// A sum is made in as many parts as a vector has lanes, each from the first feature to the last.
#[inline(always)]
pub fn gram<S: Simd>(simd: S, x: &[f32], features: usize, out: &mut [f32]) {
    // The sums of a block are held in registers, with a row and all others: 21 of 32, or 13 of 16.
    if S::ROWS > 6 {
        blocks::<S, MOST>(simd, x, features, out);
    } else {
        blocks::<S, 3>(simd, x, features, out);
    }
}

#[inline(always)]
fn blocks<S: Simd, const N: usize>(simd: S, x: &[f32], features: usize, out: &mut [f32]) {
    let size = x.len() / features;
    assert_eq!(out.len(), size * size, "a product of each row with each");
    for first in (0..size).step_by(N) {
        for other in (0..=first).step_by(N) {
            // Behind the last row comes itself, whose products are not written.
            let rows = [first, other].map(|start| {
                let mut rows: [&[f32]; N] = [&[]; N];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = &x[(start + i).min(size - 1) * features..][..features];
                }
                rows
            });
            let products = products(simd, rows, features);
            for (i, products) in (first..size).zip(products.chunks_exact(N)) {
                for (j, product) in (other..size).zip(products) {
                    out[i * size + j] = *product;
                    out[j * size + i] = *product;
                }
            }
        }
    }
}

/// The products of each of the first rows with each of the others, row by row.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn products<S: Simd, const N: usize>(
    simd: S,
    [rows, others]: [[&[f32]; N]; 2],
    features: usize,
) -> [f32; MOST * MOST] {
    let mut sums = [[simd.splat(0.0); N]; N];
    let whole = |row: &&[f32]| row.len() == features;
    assert!(features.is_multiple_of(S::WIDTH) && rows.iter().chain(&others).all(whole));
    for at in (0..features).step_by(S::WIDTH) {
        // SAFETY: rows are so many features long, a multiple of a vector's.
        let read = |row: &[f32]| unsafe { simd.read(row.as_ptr().add(at)) };
        let others = others.map(read);
        for i in 0..N {
            let row = read(rows[i]);
            for j in 0..N {
                sums[i][j] = simd.mul_add(row, others[j], sums[i][j]);
            }
        }
    }
    // Sums that were reached by anything but constants would not stay in registers above.
    let mut lanes = [0.0; MOST * MOST * WIDEST];
    for i in 0..N {
        for j in 0..N {
            simd.store(&mut lanes[(i * N + j) * S::WIDTH..], sums[i][j]);
        }
    }
    let mut found = [0.0; MOST * MOST];
    for (place, found) in found.chunks_mut(S::WIDTH).enumerate() {
        let mut columns = [0.0; WIDEST * WIDEST];
        let lanes = &lanes[place * S::WIDTH * S::WIDTH..];
        simd.transpose((lanes, S::WIDTH), (&mut columns, S::WIDTH), S::WIDTH);
        let mut total = simd.load(&columns);
        for column in columns.chunks_exact(S::WIDTH).take(S::WIDTH).skip(1) {
            total = simd.add(total, simd.load(column));
        }
        simd.store(&mut columns, total);
        found.copy_from_slice(&columns[..found.len()]);
    }
    found
}
