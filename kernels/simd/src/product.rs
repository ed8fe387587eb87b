//! Products of small matrices as they lie: packing them would take as long.

use super::simd::{Simd, even_parts, with_rows};

/// Initial rows of a product.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// Zeros.
    Zeros,
    /// All with the same row.
    Row(&'a [f32]),
    /// The contents of `out`.
    Before,
}

/// `out[r, :] = start + sum over steps s of a[r * a_row + s * a_step] * b[s, :]`, for as many rows as
/// `out` has.
pub struct Product<'a> {
    /// The scalars to broadcast.
    pub a: &'a [f32],
    /// Distance between the scalars of adjacent rows.
    pub a_row: usize,
    /// Distance between the scalars of adjacent steps.
    pub a_step: usize,
    /// `[steps, width]`
    pub b: &'a [f32],
    /// Length of the rows of `b` and `out`.
    pub width: usize,
    /// Summand of the product.
    pub start: Start<'a>,
}

/// Most vectors of a row at once.
const VECTORS: usize = 3;

/// Computes `job` into `out`.
#[inline(always)]
pub fn product<S: Simd>(simd: S, job: &Product<'_>, out: &mut [f32]) {
    let Product { width, start, .. } = *job;
    let (rows, steps) = (out.len() / width, job.b.len() / width);
    assert!(out.len() == rows * width && job.b.len() == steps * width, "whole rows");
    if let Start::Row(row) = start {
        assert!(row.len() == width, "as long as a row");
    }
    if rows > 0 && steps > 0 {
        let last = (rows - 1) * job.a_row + (steps - 1) * job.a_step;
        assert!(last < job.a.len(), "a step leaves `a`");
    }
    let vectors = width.div_ceil(S::WIDTH);
    // Panels of nearly equal width: where a row ends amid a vector, that vector overlaps the one
    // before it, which is in the same panel, for each has two where there are several.
    for [from, to] in even_parts(vectors, vectors.div_ceil(VECTORS)) {
        // SAFETY: the rows of `b`, `out` and `start` are `width` long, at least a vector unless they
        // are told to be narrow, and `a` has a scalar for every row and step.
        unsafe {
            match to - from {
                1 if width < S::WIDTH => panel_of::<S, 1, true>(simd, job, from, out),
                1 => panel_of::<S, 1, false>(simd, job, from, out),
                2 => panel_of::<S, 2, false>(simd, job, from, out),
                3 => panel_of::<S, 3, false>(simd, job, from, out),
                more => unreachable!("a panel has 1 to {VECTORS} vectors, not {more}"),
            }
        }
    }
}

/// Computes the `V` vectors of every row from vector `first` on, in a `NARROW` product less than one.
///
/// # Safety
/// The conditions of [`group_of`].
#[inline(always)]
unsafe fn panel_of<S: Simd, const V: usize, const NARROW: bool>(
    simd: S,
    job: &Product<'_>,
    first: usize,
    out: &mut [f32],
) {
    let rows = out.len() / job.width;
    let most = (2 * S::ROWS / V).min(8);
    let last = job.width.saturating_sub(S::WIDTH);
    let mut columns = [0; V];
    for (v, column) in columns.iter_mut().enumerate() {
        *column = ((first + v) * S::WIDTH).min(last);
    }
    for [from, to] in even_parts(rows, rows.div_ceil(most)) {
        // SAFETY: as the caller promises; the rows are some of those of `out`.
        unsafe {
            with_rows!(to - from, most, [1 2 3 4 5 6 7 8], |N| {
                group_of::<S, N, V, NARROW>(simd, job, from, columns, out)
            });
        }
    }
}

/// Computes these columns of the `N` rows from `first` on in registers.
///
/// # Safety
/// `out` has these rows, `a` their scalars, and every column begins a vector inside a row, or in a
/// `NARROW` product all of it.
#[inline(always)]
unsafe fn group_of<S: Simd, const N: usize, const V: usize, const NARROW: bool>(
    simd: S,
    job: &Product<'_>,
    first: usize,
    columns: [usize; V],
    out: &mut [f32],
) {
    let Product { a, a_row, a_step, b, width, start } = *job;
    let mut sums = [[simd.splat(0.0); V]; N];
    for (row, sums) in sums.iter_mut().enumerate() {
        let from = match start {
            Start::Zeros => break,
            Start::Row(all) => all.as_ptr(),
            Start::Before => out.as_ptr().wrapping_add((first + row) * width),
        };
        // SAFETY: a row of `width` floats.
        *sums = unsafe { vectors_of::<S, V, NARROW>(simd, from, columns, width) };
    }
    let mut bases = [a.as_ptr(); N];
    for (row, base) in bases.iter_mut().enumerate() {
        *base = base.wrapping_add((first + row) * a_row);
    }
    let (mut step, mut b_row) = (0, b.as_ptr());
    for _ in 0..b.len() / width {
        // SAFETY: a row of `b`, and a scalar for every row and step, as the caller promises.
        unsafe {
            let vectors = vectors_of::<S, V, NARROW>(simd, b_row, columns, width);
            for row in 0..N {
                let scalar = simd.splat(*bases[row].wrapping_add(step));
                for v in 0..V {
                    sums[row][v] = simd.mul_add(scalar, vectors[v], sums[row][v]);
                }
            }
        }
        step += a_step;
        b_row = b_row.wrapping_add(width);
    }
    for (row, sums) in sums.into_iter().enumerate() {
        let to = &mut out[(first + row) * width..][..width];
        for (column, sum) in columns.into_iter().zip(sums) {
            let to = to[column..].as_mut_ptr();
            // SAFETY: a vector from here on is inside the row, or `NARROW` and all of it.
            unsafe { if NARROW { simd.write_first(to, width, sum) } else { simd.write(to, sum) } }
        }
    }
}

/// The vectors at these columns of a row; in a `NARROW` product all of it.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn vectors_of<S: Simd, const V: usize, const NARROW: bool>(
    simd: S,
    row: *const f32,
    columns: [usize; V],
    width: usize,
) -> [S::Vector; V] {
    let mut vectors = [simd.splat(0.0); V];
    for (vector, column) in vectors.iter_mut().zip(columns) {
        let from = row.wrapping_add(column);
        // SAFETY: as the caller promises.
        *vector = unsafe { if NARROW { simd.read_first(from, width) } else { simd.read(from) } };
    }
    vectors
}

/// Writes the transpose of a matrix with so many columns.
#[inline(always)]
pub fn transposed<S: Simd>(simd: S, from: &[f32], columns: usize, to: &mut [f32]) {
    let rows = from.len() / columns;
    assert!(from.len() == rows * columns && to.len() == from.len(), "as many as there are");
    if rows < S::WIDTH || columns < S::WIDTH {
        for (row, from) in from.chunks_exact(columns).enumerate() {
            to[row..].iter_mut().step_by(rows).zip(from).for_each(|(to, from)| *to = *from);
        }
        return;
    }
    // The last block overlaps the one before it.
    let blocks = |of: usize| (0..of).step_by(S::WIDTH).map(move |at| at.min(of - S::WIDTH));
    for row in blocks(rows) {
        for column in blocks(columns) {
            let from = (&from[row * columns + column..], columns);
            simd.transpose(from, (&mut to[column * rows + row..], rows), S::WIDTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Product, Start};
    use crate::instruction_set::{InstructionSet, bodies};
    use crate::integers;

    /// Widths about every number of vectors up to three panels.
    fn widths(body: &dyn InstructionSet) -> impl Iterator<Item = usize> {
        let vector = body.tile() / 2;
        (1..=7).flat_map(move |n| [n * vector - vector / 2, n * vector - 1, n * vector]).chain([1])
    }

    #[test]
    fn any_number_of_rows_steps_and_columns_is_summed() {
        for body in bodies() {
            for width in widths(body) {
                for (rows, steps) in (1..=19).map(|rows| (rows, rows * 5 % 7)).chain([(0, 3)]) {
                    let (a_row, a_step) = (2, 3);
                    let a = integers(2 * rows + 3 * steps, 0);
                    let (b, row) = (integers(steps * width, 0), integers(width, 0));
                    for start in [Start::Zeros, Start::Row(&row), Start::Before] {
                        let job = Product { a: &a, a_row, a_step, b: &b, width, start };
                        let mut out = integers(rows * width, 0);
                        let expected: Vec<f32> = (0..out.len())
                            .map(|i| {
                                let begin = match start {
                                    Start::Zeros => 0.0,
                                    Start::Row(row) => row[i % width],
                                    Start::Before => out[i],
                                };
                                let term = |s: usize| {
                                    a[i / width * a_row + s * a_step] * b[s * width + i % width]
                                };
                                (0..steps).map(term).fold(begin, |sum, term| sum + term)
                            })
                            .collect();
                        body.product(&job, &mut out);
                        let name = body.name();
                        assert_eq!(out, expected, "{name}: {rows}, {steps}, {width}, {start:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for body in bodies() {
            let (a, b) = (&integers(6, 0)[..], &integers(12, 0)[..]);
            let run = |a_row, a_step, width, start| {
                let job = Product { a, a_row, a_step, b, width, start };
                let go = || body.product(&job, &mut [0.0; 8]);
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(go)).is_ok()
            };
            assert!(run(3, 1, 4, Start::Zeros));
            assert!(!run(4, 1, 4, Start::Zeros), "a row leaves `a`");
            assert!(!run(3, 2, 4, Start::Zeros), "a step leaves `a`");
            assert!(!run(0, 0, 3, Start::Zeros), "rows of `out` are not whole");
            assert!(!run(0, 0, 8, Start::Zeros), "rows of `b` are not whole");
            assert!(!run(3, 1, 4, Start::Row(&b[..5])), "another row");
        }
    }

    #[test]
    fn a_transpose_has_every_number_in_its_place() {
        for body in bodies() {
            for rows in widths(body) {
                for columns in widths(body) {
                    let from: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
                    let mut to = vec![-1.0; from.len()];
                    body.transposed(&from, columns, &mut to);
                    for (place, value) in to.into_iter().enumerate() {
                        let expected = place % rows * columns + place / rows;
                        assert_eq!(value, expected as f32, "{} {rows} {columns}", body.name());
                    }
                }
            }
        }
    }
}
