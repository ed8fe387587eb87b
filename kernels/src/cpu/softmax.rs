//! The softmax of scores, its loss at the labels, and the gradient of that.

use super::exponential::exp;
use super::simd::Simd;

/// How products become scores: `score = product * scale[column] * row_scale[row] + shift[column]`.
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
    pub scoring: Scoring<'a>,
    pub labels: &'a [usize],
    /// Of each row in the loss.
    pub weight: f32,
    pub gradient: bool,
    /// Loss, and one if the label comes first, else zero, by row: `[rows, 2]`.
    pub outcome: &'a mut [f32],
    /// Sum of `u * score` by row.
    pub row_sums: &'a mut [f32],
    /// Sums by column of `u`, or of `u * score`, are added.
    pub column_sums: &'a mut [f32],
    /// Whether the sums by column are those of `u * score`.
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
    let lanes = &mut rows.scratch[..S::WIDTH];
    simd.store(lanes, largest);
    lanes.iter().copied().fold(f32::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a })
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
    let mut lanes = [0.0; 16];
    simd.store(&mut lanes, sums);
    let total: f32 = lanes[..S::WIDTH].iter().sum();

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
    simd.store(&mut lanes, row_sum);
    rows.row_sums[row] = lanes[..S::WIDTH].iter().sum();
}
