//! The inner loop of a rank-k update: rows of a matrix, in place.

use super::simd::{self, Simd, with_rows};

/// Rows that share what is read of the right factor: two vectors of each leave 4 of 16 registers for
/// the operands.
const ROWS: usize = 6;

/// Rows whose part of the left factor is packed at once, and that take their turns at a tile of the
/// right one where there are many summands.
pub const BLOCK: usize = 8 * ROWS;

/// Summands from which tiles of the right factor are read often enough that they should lie in the
/// nearest cache.
const MANY: usize = 8;

/// Most summands at once: their part of a block of the left factor and their tile of the right one
/// share the nearest cache.
const PANEL: usize = 64;

/// Floats in the widest tile.
const WIDEST: usize = 2 * simd::WIDEST;

/// `w[i, :] = retention[i] * w[i, :] + sum over s of rate * left[s, i] * right[s, :]` for adjacent rows.
pub struct RankUpdate<'a> {
    /// The left factor from the first row on, a row of `left_step` floats for each summand.
    pub left: &'a [f32],
    /// Distance between the summands of the left factor.
    pub left_step: usize,
    /// Factor of the left factor.
    pub rate: f32,
    /// The right factor: of one summand a row of `columns` floats, of more as [`tiles`] packs them.
    pub right: &'a [f32],
    /// Floats of a row.
    pub columns: usize,
    /// Outer products that are added.
    pub summands: usize,
    /// Factor of the old rows: a value for each, or one for all.
    pub retention: &'a [f32],
}

impl RankUpdate<'_> {
    /// Panics unless every row and summand stays inside the factors.
    fn check(&self, rows: usize, tile: usize) {
        let Self { summands, columns, .. } = *self;
        let left = summands.saturating_sub(1) * self.left_step + rows;
        assert!(summands == 0 || left <= self.left.len(), "a row leaves the left factor");
        let row = if summands == 1 { columns } else { columns.next_multiple_of(tile) };
        assert!(summands * row <= self.right.len(), "a summand leaves the right factor");
        assert!(self.retention.len() == 1 || self.retention.len() == rows, "a factor for each row");
    }

    #[inline(always)]
    fn retention(&self, row: usize) -> f32 {
        if self.retention.len() == 1 { self.retention[0] } else { self.retention[row] }
    }
}

/// Packs rows of `columns` floats: their first `tile` floats, one row after the other, then the next,
/// and at last the tile that ends with the row. Shorter rows are filled up with zeros.
pub fn tiles(of: &[f32], columns: usize, tile: usize) -> Vec<f32> {
    let rows = of.len() / columns.max(1);
    let mut packed = vec![0.0; rows * columns.next_multiple_of(tile)];
    for (index, to) in packed.chunks_exact_mut((rows * tile).max(1)).enumerate() {
        let first = (index * tile).min(columns.saturating_sub(tile));
        let length = tile.min(columns);
        for (to, from) in to.chunks_exact_mut(tile).zip(of.chunks_exact(columns)) {
            to[..length].copy_from_slice(&from[first..first + length]);
        }
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
            // A row is read and written once, and nothing else is in the way.
            let (retention, left) = (job.retention(row), job.rate * job.left[row]);
            for (w, right) in w.iter_mut().zip(job.right) {
                *w = simd.scalar_mul_add(*w, retention, right * left);
            }
        }
        return;
    }
    let mut left = vec![0.0; BLOCK.min(rows) * job.summands.min(PANEL)];
    for first in (0..rows).step_by(BLOCK) {
        let end = rows.min(first + BLOCK);
        let mut from = 0;
        // Without a summand there is still a share to keep.
        while from < job.summands.max(1) {
            let panel = Panel::new::<S>(job, [first, end], from, &mut left);
            panel.update(simd, w);
            from += PANEL;
        }
    }
}

/// A block of rows and some of the summands.
struct Panel<'a> {
    job: &'a RankUpdate<'a>,
    rows: [usize; 2],
    /// The right factor from the first of these summands on.
    right: &'a [f32],
    summands: usize,
    /// The left factor: a group of rows after the other, the scalars of a summand side by side.
    left: &'a [f32],
    /// Factor of the old rows.
    retention: [f32; BLOCK],
}

impl<'a> Panel<'a> {
    /// The summands from `from` on.
    #[inline(always)]
    fn new<S: Simd>(
        job: &'a RankUpdate<'a>,
        rows: [usize; 2],
        from: usize,
        packed: &'a mut [f32],
    ) -> Self {
        let [first, end] = rows;
        let summands = PANEL.min(job.summands - from);
        let left = job.left.get(from * job.left_step..).unwrap_or_default();
        for row in (first..end).step_by(ROWS) {
            let from = (left.get(row..).unwrap_or_default(), job.left_step);
            let to = &mut packed[(row - first) * summands..];
            with_rows!(ROWS.min(end - row), ROWS, [1 2 3 4 5 6], |N| {
                pack::<N>(from, job.rate, summands, to)
            });
        }
        let mut retention = [1.0; BLOCK];
        if from == 0 {
            retention
                .iter_mut()
                .zip(first..end)
                .for_each(|(retention, row)| *retention = job.retention(row));
        }
        Self { job, rows, right: &job.right[from * S::TILE..], summands, left: packed, retention }
    }

    #[inline(always)]
    fn update<S: Simd>(&self, simd: S, w: &mut [f32]) {
        let [first, end] = self.rows;
        let columns = self.job.columns;
        // Few summands leave the time to memory, which likes whole rows best.
        let [rows, width] =
            if self.job.summands < MANY { [ROWS, columns] } else { [BLOCK, S::TILE] };
        for top in (first..end).step_by(rows) {
            let bottom = end.min(top + rows);
            for side in (0..columns).step_by(width) {
                for row in (top..bottom).step_by(ROWS) {
                    for column in (side..columns.min(side + width)).step_by(S::TILE) {
                        with_rows!(ROWS.min(end - row), ROWS, [1 2 3 4 5 6], |N| {
                            self.rows_of::<S, N>(simd, [row, column], w)
                        });
                    }
                }
            }
        }
    }

    /// Updates a tile of `N` rows, or what there is of it.
    #[inline(always)]
    fn rows_of<S: Simd, const N: usize>(&self, simd: S, [row, column]: [usize; 2], w: &mut [f32]) {
        let (columns, at) = (self.job.columns, row - self.rows[0]);
        let w = &mut w[row * columns..(row + N) * columns];
        let retention = &self.retention[at..at + N];
        let left = &self.left[at * self.summands..][..N * self.summands];
        let right = &self.right[column * self.job.summands..][..self.summands * S::TILE];
        let length = S::TILE.min(columns - column);
        if length == S::TILE {
            let to = w.as_mut_ptr().wrapping_add(column);
            // SAFETY: `N` rows of `w` from `column` on.
            unsafe { tile_of::<S, N>(simd, (left, right), retention, (to, columns), (to, columns)) }
            return;
        }
        // What is left takes the same instructions, so that no element depends on its place.
        let mut tiles = [[0.0; WIDEST]; N];
        let to: *mut f32 = tiles.as_mut_ptr().cast();
        let start = columns.saturating_sub(S::TILE);
        let from = match columns < S::TILE {
            true => {
                for (tile, row) in tiles.iter_mut().zip(w.chunks_exact(columns)) {
                    tile[..columns].copy_from_slice(row);
                }
                (to.cast_const(), WIDEST)
            }
            false => (w.as_ptr().wrapping_add(start), columns),
        };
        // SAFETY: `N` tiles stand in `tiles`, and at the ends of as many rows that have one.
        unsafe { tile_of::<S, N>(simd, (left, right), retention, from, (to, WIDEST)) }
        for (tile, row) in tiles.iter().zip(w.chunks_exact_mut(columns)) {
            row[column..].copy_from_slice(&tile[column - start..columns - start]);
        }
    }
}

/// Writes the first `N` floats of each summand, `step` floats apart and times `rate`, so that they
/// are adjacent.
#[inline(always)]
fn pack<const N: usize>((from, step): (&[f32], usize), rate: f32, summands: usize, to: &mut [f32]) {
    for (s, to) in to.as_chunks_mut::<N>().0.iter_mut().take(summands).enumerate() {
        let from = &from[s * step..s * step + N];
        to.iter_mut().zip(from).for_each(|(to, from)| *to = rate * from);
    }
}

/// Updates a tile of each of `N` rows, with the sums in registers.
///
/// The left factor has `N` floats for each summand, the right one a tile.
///
/// # Safety
/// A tile is readable at each of `N` steps from `from`, and writable at as many from `to`.
#[inline(always)]
unsafe fn tile_of<S: Simd, const N: usize>(
    simd: S,
    (left, right): (&[f32], &[f32]),
    retention: &[f32],
    (from, from_step): (*const f32, usize),
    (to, to_step): (*mut f32, usize),
) {
    let mut sums = [[simd.splat(0.0); 2]; N];
    for (scalars, tile) in left.as_chunks::<N>().0.iter().zip(right.chunks_exact(S::TILE)) {
        let vectors = simd.load_tile(tile);
        for (sums, &scalar) in sums.iter_mut().zip(scalars) {
            let scalar = simd.splat(scalar);
            sums[0] = simd.mul_add(scalar, vectors[0], sums[0]);
            sums[1] = simd.mul_add(scalar, vectors[1], sums[1]);
        }
    }
    for (row, (sums, retention)) in sums.into_iter().zip(retention).enumerate() {
        let retention = simd.splat(*retention);
        for (half, sum) in sums.into_iter().enumerate() {
            // SAFETY: as promised.
            unsafe {
                let old = simd.read(from.add(row * from_step + half * S::WIDTH));
                let to = to.add(row * to_step + half * S::WIDTH);
                simd.write(to, simd.mul_add(old, retention, sum));
            }
        }
    }
}
