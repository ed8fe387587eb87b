//! The inner loop of a rank-k update: rows of a matrix, in place.

use super::simd::Simd;
use super::sweep::{Update, sweep};

/// Rows that share what is read of the right factor: two vectors of each leave 4 of 16 registers for
/// the operands.
const ROWS: usize = 6;

/// Summands from which the right factor is read often enough that it should lie in the nearest cache.
const MANY: usize = 8;

/// Rows that take their turns at a tile of the right factor, where there are many summands.
pub const BLOCK: usize = 8 * ROWS;

/// Floats in the widest tile.
const WIDEST: usize = 32;

/// `w[i, :] = kept[i] * w[i, :] + sum over s of left[s, i] * right[s, :]` for adjacent rows.
pub struct RankUpdate<'a> {
    /// The left factor from the first row on, a row of `left_step` floats for each summand.
    pub left: &'a [f32],
    /// Distance between the summands of the left factor.
    pub left_step: usize,
    /// The right factor, a row of `columns` floats for each summand.
    pub right: &'a [f32],
    /// What does not fill a tile at the end of the right factor's rows: a tile for each summand.
    pub rest: &'a [f32],
    /// Length of a row.
    pub columns: usize,
    /// Number of summands.
    pub summands: usize,
    /// What to multiply the old rows with: a value for each, or one for all.
    pub kept: &'a [f32],
}

impl RankUpdate<'_> {
    /// Panics unless every row and summand stays inside the factors.
    fn check(&self, rows: usize, tile: usize) {
        let Self { summands, columns, .. } = *self;
        let left = summands.saturating_sub(1) * self.left_step + rows;
        assert!(summands == 0 || left <= self.left.len(), "a row leaves the left factor");
        assert!(summands * columns <= self.right.len(), "a summand leaves the right factor");
        let rest = if columns.is_multiple_of(tile) { 0 } else { summands * tile };
        assert!(rest <= self.rest.len(), "a tile of the rest for each summand");
        assert!(self.kept.len() == 1 || self.kept.len() == rows, "a factor for each row");
    }

    #[inline(always)]
    fn kept(&self, row: usize) -> f32 {
        if self.kept.len() == 1 { self.kept[0] } else { self.kept[row] }
    }
}

/// One summand: a row is read and written once, and nothing else is in the way.
struct Row {
    kept: f32,
    left: f32,
}

impl<S: Simd> Update<S, 1, 1> for Row {
    #[inline(always)]
    fn apply(&self, simd: S, [right]: [S::Vector; 1], [w]: [S::Vector; 1]) -> [S::Vector; 1] {
        [simd.mul_add(w, simd.splat(self.kept), simd.mul(right, simd.splat(self.left)))]
    }
}

/// Packs what does not fill a tile at the end of rows of `columns` floats: a tile for each row.
pub fn rest(of: &[f32], columns: usize, tile: usize) -> Vec<f32> {
    let short = columns % tile;
    if short == 0 {
        return Vec::new();
    }
    let mut packed = vec![0.0; of.len() / columns * tile];
    for (to, from) in packed.chunks_exact_mut(tile).zip(of.chunks_exact(columns)) {
        to[..short].copy_from_slice(&from[columns - short..]);
    }
    packed
}

/// Updates the rows of `w`.
///
/// No element depends on the rows beside its own.
#[inline(always)]
pub fn rank_update<S: Simd>(simd: S, job: &RankUpdate<'_>, w: &mut [f32]) {
    if w.is_empty() {
        return;
    }
    let rows = w.len() / job.columns;
    assert!(w.len() == rows * job.columns, "whole rows");
    job.check(rows, S::TILE);
    if job.summands == 1 {
        for (row, w) in w.chunks_exact_mut(job.columns).enumerate() {
            let update = Row { kept: job.kept(row), left: job.left[row] };
            sweep(simd, &update, [&job.right[..job.columns]], [w]);
        }
        return;
    }
    // Few summands leave the time to memory, which likes whole rows best.
    let block = if job.summands < MANY { ROWS } else { BLOCK };
    let columns = job.columns.next_multiple_of(S::TILE);
    for first in (0..rows).step_by(block) {
        let end = rows.min(first + block);
        for column in (0..columns).step_by(S::TILE) {
            let whole = end - (end - first) % ROWS;
            for row in (first..whole).step_by(ROWS) {
                rows_of::<S, ROWS>(simd, job, [row, column], w);
            }
            for row in whole..end {
                rows_of::<S, 1>(simd, job, [row, column], w);
            }
        }
    }
}

/// Updates a tile of `N` rows, or what there is of it; `job.check` holds.
#[inline(always)]
fn rows_of<S: Simd, const N: usize>(
    simd: S,
    job: &RankUpdate<'_>,
    [first, column]: [usize; 2],
    w: &mut [f32],
) {
    let columns = job.columns;
    let w = &mut w[first * columns..(first + N) * columns];
    let kept: [f32; N] = std::array::from_fn(|i| job.kept(first + i));
    let left = job.left.as_ptr().wrapping_add(first);
    let length = S::TILE.min(columns - column);
    if length == S::TILE {
        let right = (job.right.as_ptr().wrapping_add(column), columns);
        let to = (w.as_mut_ptr().wrapping_add(column), columns);
        // SAFETY: `N` rows of `w` from `column` on; `check` keeps their summands inside the factors.
        unsafe { tile_of::<S, N>(simd, (job, left), kept, right, to) }
        return;
    }
    // What is left takes the same instructions, so that no element depends on its place.
    let mut tiles = [[0.0; WIDEST]; N];
    for (tile, row) in tiles.iter_mut().zip(w.chunks_exact(columns)) {
        tile[..length].copy_from_slice(&row[column..]);
    }
    let (right, to) = ((job.rest.as_ptr(), S::TILE), (tiles.as_mut_ptr().cast(), WIDEST));
    // SAFETY: `N` tiles stand in `tiles`, and one for each summand in `rest`, by `check`.
    unsafe { tile_of::<S, N>(simd, (job, left), kept, right, to) }
    for (tile, row) in tiles.iter().zip(w.chunks_exact_mut(columns)) {
        row[column..].copy_from_slice(&tile[..length]);
    }
}

/// Updates a tile of each of `N` rows, with the sums in registers.
///
/// # Safety
/// A tile is writable at each of `N` steps from `to`, one is readable at each summand's step from
/// `right`, and `N` floats at each summand's step from `left`.
#[inline(always)]
unsafe fn tile_of<S: Simd, const N: usize>(
    simd: S,
    (job, left): (&RankUpdate<'_>, *const f32),
    kept: [f32; N],
    (mut right, right_step): (*const f32, usize),
    (to, to_step): (*mut f32, usize),
) {
    let mut sums = [[simd.splat(0.0); 2]; N];
    let mut scalars = left;
    for _ in 0..job.summands {
        // SAFETY: as promised.
        unsafe {
            let vectors = [simd.read(right), simd.read(right.add(S::WIDTH))];
            for (row, sums) in sums.iter_mut().enumerate() {
                let scalar = simd.splat(*scalars.add(row));
                sums[0] = simd.mul_add(scalar, vectors[0], sums[0]);
                sums[1] = simd.mul_add(scalar, vectors[1], sums[1]);
            }
        }
        scalars = scalars.wrapping_add(job.left_step);
        right = right.wrapping_add(right_step);
    }
    for (row, (sums, kept)) in sums.into_iter().zip(kept).enumerate() {
        let kept = simd.splat(kept);
        for (half, sum) in sums.into_iter().enumerate() {
            // SAFETY: as promised.
            unsafe {
                let at = to.add(row * to_step + half * S::WIDTH);
                simd.write(at, simd.mul_add(simd.read(at), kept, sum));
            }
        }
    }
}
