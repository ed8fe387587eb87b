//! The softmax of rows; of scores, with the loss at their labels and its gradient.

use super::exponential::exp;
use super::simd::{Simd, WIDEST};

/// Map from products to scores: `score = product * scale[column] * row_scale[row] + shift[column]`.
#[derive(Clone, Copy)]
pub struct Scoring<'a> {
    /// By column, up to a whole tile.
    pub scale: &'a [f32],
    /// By column; negative infinity behind the last.
    pub shift: &'a [f32],
    /// By row.
    pub row_scale: &'a [f32],
}

/// Some rows of products, and what comes of them.
///
/// With `u = (softmax - one at the label) * weight`, of a row:
pub struct Rows<'a> {
    /// Products in tiles of columns, `[tiles, rows, TILE]`; where the gradient is wanted, that of
    /// the loss by the products replaces them: `u * scale * row_scale`.
    pub products: &'a mut [f32],
    /// Map from products to scores.
    pub scoring: Scoring<'a>,
    /// Column of the label of every row.
    pub labels: &'a [usize],
    /// Weight of each row in the loss.
    pub weight: f32,
    /// Replaces the products by the gradient.
    pub gradient: bool,
    /// Loss, and one if the label comes first, else zero, by row: `[rows, 2]`.
    pub outcome: &'a mut [f32],
    /// Sum of `u * score` by row.
    pub row_sums: &'a mut [f32],
    /// Sums by column of `u`, or of `u * score`, are added.
    pub column_sums: &'a mut [f32],
    /// Sums `u * score` by column, not `u`.
    pub by_score: bool,
    /// A whole row.
    pub scratch: &'a mut [f32],
}

/// Turns the products of [`Rows`] into scores and softmax, with what else is asked for there.
#[inline(always)]
pub fn softmax_scores<S: Simd>(simd: S, rows: &mut Rows<'_>) {
    let count = rows.labels.len();
    for row in 0..count {
        let largest = score_row(simd, rows, row, count);
        settle_row(simd, rows, row, count, largest);
    }
}

/// Where the vectors of a row begin: in the products, and among the columns.
#[inline(always)]
fn vectors<S: Simd>(columns: usize, row: usize, count: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..columns).step_by(S::WIDTH).map(move |column| {
        let (tile, lane) = (column / S::TILE, column % S::TILE);
        [(tile * count + row) * S::TILE + lane, column]
    })
}

/// Replaces the products of a row by its scores and returns the largest.
#[inline(always)]
fn score_row<S: Simd>(simd: S, rows: &mut Rows<'_>, row: usize, count: usize) -> f32 {
    let Scoring { scale, shift, row_scale } = rows.scoring;
    let of_row = simd.splat(row_scale[row]);
    let mut largest = simd.splat(f32::NEG_INFINITY);
    for [at, column] in vectors::<S>(scale.len(), row, count) {
        let factor = simd.mul(simd.load(&scale[column..]), of_row);
        let product = simd.load(&rows.products[at..]);
        let score = simd.mul_add(product, factor, simd.load(&shift[column..]));
        simd.store(&mut rows.products[at..], score);
        largest = simd.max(largest, score);
    }
    largest_lane(simd, largest, &[])
}

#[inline(always)]
fn settle_row<S: Simd>(simd: S, rows: &mut Rows<'_>, row: usize, count: usize, largest: f32) {
    let scoring = rows.scoring;
    let columns = scoring.scale.len();
    let zero = simd.splat(0.0);
    let mut sums = zero;
    for [at, column] in vectors::<S>(columns, row, count) {
        let score = simd.load(&rows.products[at..]);
        let e = exp(simd, simd.sub(score, simd.splat(largest)));
        simd.store(&mut rows.scratch[column..], e);
        sums = simd.add(sums, e);
    }
    let total = simd.sum(sums);

    let label = rows.labels[row];
    let at = |column: usize| (column / S::TILE * count + row) * S::TILE + column % S::TILE;
    let of_label = rows.products[at(label)];
    let first = of_label == largest && (0..label).all(|other| rows.products[at(other)] != largest);
    rows.outcome[2 * row] = total.ln() + (largest - of_label);
    rows.outcome[2 * row + 1] = f32::from(u8::from(first));
    if !rows.gradient {
        return;
    }

    let share = simd.splat(rows.weight / total);
    for [_, column] in vectors::<S>(columns, row, count) {
        let u = simd.mul(simd.load(&rows.scratch[column..]), share);
        simd.store(&mut rows.scratch[column..], u);
    }
    rows.scratch[label] -= rows.weight;
    let of_row = simd.splat(scoring.row_scale[row]);
    let mut row_sum = zero;
    for [at, column] in vectors::<S>(columns, row, count) {
        let u = simd.load(&rows.scratch[column..]);
        let score = simd.load(&rows.products[at..]);
        // Behind the last column the score is infinite, and `u` zero.
        let by_score = simd.mul(u, simd.max(score, simd.splat(f32::MIN)));
        row_sum = simd.add(row_sum, by_score);
        let term = if rows.by_score { by_score } else { u };
        let sum = simd.add(simd.load(&rows.column_sums[column..]), term);
        simd.store(&mut rows.column_sums[column..], sum);
        let factor = simd.mul(simd.load(&scoring.scale[column..]), of_row);
        simd.store(&mut rows.products[at..], simd.mul(u, factor));
    }
    rows.row_sums[row] = simd.sum(row_sum);
}

/// Replaces every row of so many scores by the softmax of these times `scale`, which is positive.
#[inline(always)]
pub fn softmax<S: Simd>(simd: S, scale: f32, columns: usize, scores: &mut [f32]) {
    let factor = simd.splat(scale);
    for row in scores.chunks_exact_mut(columns) {
        let shift = simd.splat(-scale * largest(simd, row));
        let mut sums = simd.splat(0.0);
        let mut total = 0.0;
        for at in (0..columns).step_by(S::WIDTH) {
            let count = (columns - at).min(S::WIDTH);
            // SAFETY: so many floats are left of the row.
            unsafe {
                let place = row.as_mut_ptr().add(at);
                let value = exp(simd, simd.mul_add(simd.read_up_to(place, count), factor, shift));
                simd.write_up_to(place, count, value);
                if count == S::WIDTH {
                    sums = simd.add(sums, value);
                } else {
                    total = row[at..].iter().sum();
                }
            }
        }
        let share = 1.0 / (total + simd.sum(sums));
        row.iter_mut().for_each(|value| *value *= share);
    }
}

/// Replaces the gradient of every row of so many shares, which are the [`softmax`] of scores times `scale`, by that of its
/// scores: `share * (gradient - sum of share * gradient) * scale`.
#[inline(always)]
pub fn softmax_vjp<S: Simd>(
    simd: S,
    scale: f32,
    columns: usize,
    shares: &[f32],
    gradient: &mut [f32],
) {
    assert_eq!(shares.len(), gradient.len(), "a gradient of each share");
    let factor = simd.splat(scale);
    for (shares, gradient) in shares.chunks_exact(columns).zip(gradient.chunks_exact_mut(columns)) {
        let mut sums = simd.splat(0.0);
        for at in (0..columns).step_by(S::WIDTH) {
            let count = (columns - at).min(S::WIDTH);
            // SAFETY: so many floats are left of both rows.
            unsafe {
                let share = simd.read_up_to(shares.as_ptr().add(at), count);
                sums = simd.mul_add(share, simd.read_up_to(gradient.as_ptr().add(at), count), sums);
            }
        }
        let mean = simd.splat(simd.sum(sums));
        for at in (0..columns).step_by(S::WIDTH) {
            let count = (columns - at).min(S::WIDTH);
            // SAFETY: so many floats are left of both rows.
            unsafe {
                let place = gradient.as_mut_ptr().add(at);
                let share = simd.mul(simd.read_up_to(shares.as_ptr().add(at), count), factor);
                let deviation = simd.sub(simd.read_up_to(place, count), mean);
                simd.write_up_to(place, count, simd.mul(share, deviation));
            }
        }
    }
}

/// The largest score; NaN where there is one.
#[inline(always)]
fn largest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let mut most = simd.splat(f32::NEG_INFINITY);
    let vectors = row.chunks_exact(S::WIDTH);
    let rest = vectors.remainder();
    for vector in vectors {
        most = simd.max(most, simd.load(vector));
    }
    largest_lane(simd, most, rest)
}

/// The largest lane, or of the `rest`; NaN where there is one.
#[inline(always)]
fn largest_lane<S: Simd>(simd: S, vector: S::Vector, rest: &[f32]) -> f32 {
    let mut lanes = [0.0; WIDEST];
    simd.store(&mut lanes, vector);
    let all = lanes[..S::WIDTH].iter().chain(rest).copied();
    all.fold(f32::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a })
}

#[cfg(test)]
mod tests {
    use crate::instruction_set::bodies;
    use crate::integers;

    #[test]
    fn rows_of_any_length_become_shares() {
        for body in bodies() {
            for columns in [1, 3, 16, 17, 257] {
                let scores = integers(3 * columns, 1);
                let mut shares = scores.clone();
                body.softmax(0.5, columns, &mut shares);
                for (scores, shares) in scores.chunks(columns).zip(shares.chunks(columns)) {
                    let total: f64 = scores.iter().map(|x| (f64::from(*x) * 0.5).exp()).sum();
                    for (score, share) in scores.iter().zip(shares) {
                        let expected = (f64::from(*score) * 0.5).exp() / total;
                        let off = (f64::from(*share) - expected).abs();
                        assert!(off < 1e-6, "{} {columns}: {share}, not {expected}", body.name());
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_jacobian() {
        for body in bodies() {
            for columns in [1, 3, 16, 17, 257] {
                let (scores, dy) = (integers(2 * columns, 1), integers(2 * columns, 2));
                let (mut shares, mut gradient) = (scores.clone(), dy.clone());
                body.softmax(0.5, columns, &mut shares);
                body.softmax_vjp(0.5, columns, &shares, &mut gradient);
                for row in 0..2 {
                    let of = |values: &[f32]| -> Vec<f64> {
                        values[row * columns..][..columns].iter().map(|x| f64::from(*x)).collect()
                    };
                    let (shares, dy, gradient) = (of(&shares), of(&dy), of(&gradient));
                    let mean: f64 = shares.iter().zip(&dy).map(|(share, dy)| share * dy).sum();
                    for ((share, dy), gradient) in shares.iter().zip(&dy).zip(&gradient) {
                        let off = (gradient - 0.5 * share * (dy - mean)).abs();
                        assert!(off < 1e-5, "{} {columns}: off by {off}", body.name());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_seen_and_large_scores_are_taken() {
        for body in bodies() {
            let mut scores = [1.0; 40];
            scores[17] = f32::NAN;
            scores[20..].fill(1e30);
            body.softmax(2.0, 20, &mut scores);
            assert!(scores[..20].iter().all(|x| x.is_nan()), "{}", body.name());
            let even = scores[20..].iter().all(|x| (x - 0.05).abs() < 1e-6);
            assert!(even, "{}: {:?}", body.name(), &scores[20..]);
        }
    }
}
