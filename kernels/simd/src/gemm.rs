//! Products of large matrices.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::buffers::{Buffer, CowBuffer, assume_init};
use super::epilogue::Epilogue;
use super::im2col::Windows;
use super::last_columns::LastColumns;
use super::simd::{Simd, WIDEST, even_parts, with_rows};

/// The right matrix of a product, as the product reads it: panels of few adjacent columns, step by step, and the last
/// columns by themselves where they would fill little of a vector.
pub struct RightMatrix<'a> {
    values: CowBuffer<'a>,
    last: LastColumns,
    /// Floats from one step to the next where the matrix is read as it lies, else panels follow each other, with zeros
    /// behind the last column.
    row: Option<usize>,
    steps: usize,
    columns: usize,
    /// Floats of a vector.
    width: usize,
}

impl<'a> RightMatrix<'a> {
    /// The matrix `b` `[steps, columns]` with rows as far apart as given with it, for vectors of so many floats: as it
    /// lies if it has whole vectors and few steps, else packed.
    pub fn new(width: usize, (b, b_row): (&'a [f32], usize), [steps, columns]: [usize; 2]) -> Self {
        assert!(steps * columns > 0, "a matrix has elements");
        assert!(b.len() >= (steps - 1) * b_row + columns, "a step leaves `b`");
        match columns.is_multiple_of(width) && steps <= MOST_STEPS {
            true => {
                let last = LastColumns::none(steps);
                Self {
                    values: CowBuffer::Borrowed(b),
                    last,
                    row: Some(b_row),
                    steps,
                    columns,
                    width,
                }
            }
            false => Self::packed(width, (b, b_row), [steps, columns]),
        }
    }

    /// The same matrix in memory of its own.
    ///
    /// # Panics
    /// Where it has no elements, or `b` has not all.
    pub fn packed(width: usize, (b, b_row): (&[f32], usize), [steps, columns]: [usize; 2]) -> Self {
        let copied = |step: usize, first: usize, to: &mut [f32]| {
            to.copy_from_slice(&b[step * b_row + first..][..to.len()]);
        };
        Self::filled(width, [steps, columns], copied)
    }

    /// The matrix of these windows.
    pub fn im2col(width: usize, windows: &Windows<'_>) -> Self {
        let write = |step: usize, first: usize, to: &mut [f32]| windows.write_row(step, first, to);
        Self::filled(width, windows.shape(), write)
    }

    /// Panels of what `write` writes of a step from a column on.
    fn filled(
        width: usize,
        [steps, columns]: [usize; 2],
        write: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) -> Self {
        assert!(steps * columns > 0, "a matrix has elements");
        let behind = LastColumns::count(width, [steps, columns]);
        let in_panels = columns - behind;
        let last = LastColumns::filled(behind, steps, |step, to| write(step, in_panels, to));
        let mut values = Buffer::stale(steps * in_panels.next_multiple_of(width));
        // Rows of a matrix are read fastest as they lie, so panels are filled together.
        let tasks = (values.len() / TASK).clamp(1, rayon::current_num_threads());
        let nothing = CowBuffer::Borrowed(&[]);
        let shape = Self { values: nothing, last, row: None, steps, columns, width };
        let mut rest = &mut values[..];
        let mut panels = Vec::with_capacity(shape.panels().len());
        for [from, to] in shape.panels() {
            let (panel, behind) = rest.split_at_mut(steps * (to - from));
            panels.push((from, to - from, panel));
            rest = behind;
        }
        let panels_per_task = panels.len().div_ceil(tasks).max(1);
        panels.par_chunks_mut(panels_per_task).for_each(|panels| {
            for step in 0..steps {
                for (from, length, panel) in panels.iter_mut() {
                    let to = &mut panel[step * *length..][..*length];
                    let count = (*length).min(in_panels - *from);
                    write(step, *from, &mut to[..count]);
                    to[count..].fill(0.0);
                }
            }
        });
        Self { values: values.into(), ..shape }
    }

    /// Number of the columns that lie in panels.
    #[inline(always)]
    fn in_panels(&self) -> usize {
        self.columns - self.last.columns()
    }

    /// The first column of every panel, and of the next one.
    #[inline(always)]
    fn panels(&self) -> impl ExactSizeIterator<Item = [usize; 2]> + use<> {
        let (width, vectors) = (self.width, self.in_panels().div_ceil(self.width));
        even_parts(vectors, vectors.div_ceil(most_vectors(width)))
            .map(move |of| of.map(|v| v * width))
    }

    /// The floats of a panel, and how many are from one step to the next.
    fn panel(&self, [first, end]: [usize; 2]) -> (&[f32], usize) {
        let (start, row) = match self.row {
            Some(row) => (first, row),
            None => (self.steps * first, end - first),
        };
        (&self.values[start..][..(self.steps - 1) * row + end - first], row)
    }
}

/// The product `a b` and its epilogue.
#[derive(Clone, Copy)]
pub struct Gemm<'a> {
    /// `[rows, steps]`, rows as far apart as given with it.
    pub a: (&'a [f32], usize),
    /// `[steps, columns]`.
    pub b: &'a RightMatrix<'a>,
    /// Rows of `a`.
    pub rows: usize,
    /// Operation on the sums.
    pub epilogue: Epilogue<'a>,
}

/// Most vectors of a row at once.
const VECTORS: usize = 3;

/// Most vectors of `width` floats in a row of a panel. Where registers are few, more rows of narrower panels read less
/// of a panel for each product, and its steps fit the L1 cache for longer.
fn most_vectors(width: usize) -> usize {
    if width < WIDEST { 2 } else { VECTORS }
}

/// Steps of a panel that all rows take before the next steps. So many of a narrow panel fit the L1 cache; of a wide
/// one, every group of rows uses a step often enough to read it from the L2 cache.
fn steps_at_once(width: usize) -> usize {
    if width < WIDEST { 384 } else { usize::MAX }
}

/// Rows that every panel takes before the next rows. With the steps that narrow panels take at once, so many fit the
/// L2 cache. Wide panels, which are fewer, take all rows: nothing else was measured.
fn rows_at_once(width: usize) -> usize {
    if width < WIDEST { 144 } else { usize::MAX }
}

/// Most steps of a matrix that is read as it lies, for each is on a page of memory of its own.
const MOST_STEPS: usize = 256;

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 16;

/// Writes `job` to `out`, `[rows, columns]` with rows as far apart as given with it: every float of the columns,
/// and none beyond.
#[inline(always)]
pub fn gemm<S: Simd>(simd: S, job: &Gemm<'_>, (out, out_row): (&mut [MaybeUninit<f32>], usize)) {
    let Gemm { a: (a, a_row), b, rows, epilogue } = *job;
    let (steps, columns) = (b.steps, b.columns);
    if rows == 0 {
        return;
    }
    assert!(b.width == S::WIDTH, "for vectors of {}", b.width);
    assert!(a.len() >= (rows - 1) * a_row + steps, "a step leaves `a`");
    assert!(out.len() >= (rows - 1) * out_row + columns, "a row for each of `a`");
    epilogue.check(rows, columns);
    b.last.gemm(simd, job, b.in_panels(), (&mut *out, out_row));
    let blocks = steps.div_ceil(steps_at_once(S::WIDTH));
    for rows in even_parts(rows, rows.div_ceil(rows_at_once(S::WIDTH))) {
        for [from, to] in even_parts(steps, blocks) {
            for [first, end] in b.panels() {
                let (values, row) = b.panel([first, end]);
                let part = Panel {
                    values: &values[from * row..],
                    row,
                    steps: to - from,
                    continues: from > 0,
                    ends: to == steps,
                    a: &a[from..],
                    a_row,
                    first,
                    width: end.min(b.in_panels()) - first,
                };
                let (rows, out) = ((rows, columns, epilogue), (&mut *out, out_row));
                match (end - first) / S::WIDTH {
                    1 => panel_of::<S, 1>(simd, &part, rows, out),
                    2 => panel_of::<S, 2>(simd, &part, rows, out),
                    3 => panel_of::<S, 3>(simd, &part, rows, out),
                    more => unreachable!("a panel has 1 to {VECTORS} vectors, not {more}"),
                }
            }
        }
    }
}

/// Adjacent columns of `b`, whole vectors of them for some adjacent steps.
struct Panel<'a> {
    values: &'a [f32],
    /// Floats from one step to the next.
    row: usize,
    steps: usize,
    /// Continues the sums of earlier steps.
    continues: bool,
    /// True of the last steps.
    ends: bool,
    /// From the first of the steps on.
    a: &'a [f32],
    a_row: usize,
    /// Its first column, and the number of them.
    first: usize,
    width: usize,
}

#[inline(always)]
fn panel_of<S: Simd, const V: usize>(
    simd: S,
    panel: &Panel<'_>,
    ([begin, end], columns, epilogue): ([usize; 2], usize, Epilogue<'_>),
    (out, out_row): (&mut [MaybeUninit<f32>], usize),
) {
    let most = (2 * S::ROWS / V).min(14);
    let rows = end - begin;
    for [from, to] in even_parts(rows, rows.div_ceil(most)).map(|part| part.map(|row| begin + row))
    {
        let a = &panel.a[from * panel.a_row..];
        let out = &mut out[from * out_row + panel.first..];
        // SAFETY: `gemm` has checked that `a` and `out` have these rows, and takes the steps of a panel in order.
        unsafe {
            with_rows!(to - from, most, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], |N| {
                group_of::<S, N, V>(simd, panel, (a, from), (epilogue, columns), (&mut *out, out_row))
            });
        }
        if panel.ends {
            for row in from..to {
                let out = &mut out[(row - from) * out_row..][..panel.width];
                // SAFETY: the group's rows are written above.
                epilogue.row(simd, row, [panel.first, columns], unsafe { assume_init(out) });
            }
        }
    }
}

/// Writes the sums of `N` rows, of which the first one's number is given with `a`, or what the epilogue makes of them
/// in registers.
///
/// # Safety
/// `a` and `out` have these rows, and where the panel continues sums, those of `out` are written.
#[inline(always)]
unsafe fn group_of<S: Simd, const N: usize, const V: usize>(
    simd: S,
    panel: &Panel<'_>,
    (a, first_row): (&[f32], usize),
    (epilogue, columns): (Epilogue<'_>, usize),
    (out, out_row): (&mut [MaybeUninit<f32>], usize),
) {
    let count = |v: usize| (panel.width - v * S::WIDTH).min(S::WIDTH);
    let mut sums = [[simd.splat(0.0); V]; N];
    if panel.continues {
        for (row, sums) in sums.iter_mut().enumerate() {
            let from = &out[row * out_row..][..panel.width];
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: so many columns are left of the row, and earlier steps have written them.
                *sum = unsafe { simd.read_up_to(from.as_ptr().add(v * S::WIDTH).cast(), count(v)) };
            }
        }
    }
    let bases: [*const f32; N] =
        std::array::from_fn(|row| a.as_ptr().wrapping_add(row * panel.a_row));
    let mut b = panel.values.as_ptr();
    for step in 0..panel.steps {
        // SAFETY: a step of the panel, and a scalar for every row and step, as the caller promises.
        unsafe {
            let mut vectors = [simd.splat(0.0); V];
            for (v, vector) in vectors.iter_mut().enumerate() {
                *vector = simd.read(b.add(v * S::WIDTH));
            }
            for row in 0..N {
                let scalar = simd.splat(*bases[row].add(step));
                for v in 0..V {
                    sums[row][v] = simd.mul_add(scalar, vectors[v], sums[row][v]);
                }
            }
        }
        b = b.wrapping_add(panel.row);
    }
    for (row, sums) in sums.into_iter().enumerate() {
        let to = &mut out[row * out_row..][..panel.width];
        let place = [panel.first, columns];
        let map = if panel.ends {
            epilogue.row_map(simd, first_row + row, place, panel.width)
        } else {
            None
        };
        for (v, sum) in sums.into_iter().enumerate() {
            let (at, count) = (v * S::WIDTH, count(v));
            // SAFETY: so many columns are left of the row.
            unsafe {
                let value = match &map {
                    Some(map) => map.applied(simd, sum, at, count),
                    None => sum,
                };
                simd.write_up_to(to.as_mut_ptr().add(at).cast(), count, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::as_uninit;
    use crate::epilogue::Activation;
    use crate::instruction_set::bodies;
    use crate::integers;

    /// Integers, so that sums do not depend on their order.
    #[test]
    fn any_size_is_multiplied() {
        for body in bodies() {
            let vector = body.tile() / 2;
            let behind = [1, 2, 3, 4].map(|behind| 2 * vector + behind);
            for columns in
                [1, vector - 1, vector, 3 * vector, 4 * vector + 3].into_iter().chain(behind)
            {
                for (rows, steps) in [
                    (1, 1),
                    (2, 7),
                    (9, 3),
                    (13, 2),
                    (29, 5),
                    (7, 803),
                    (150, 3),
                    (290, 400),
                    (1, 64),
                    (17, 77),
                ] {
                    let [a_row, b_row, out_row] = [steps + 2, columns + 3, columns + 1];
                    let (a, b) = (integers(rows * a_row, 1), integers(steps * b_row, 2));
                    let (by_row, by_column) = (integers(rows, 3), integers(columns, 4));
                    let add = integers(rows * columns, 5);
                    let sum = |row: usize, column: usize| -> f32 {
                        (0..steps).map(|s| a[row * a_row + s] * b[s * b_row + column]).sum()
                    };
                    let of_rows = Epilogue::Rows {
                        scale: &by_row,
                        shift: &by_row,
                        bounds: [-50.0, 60.0],
                        add: Some(&add),
                    };
                    let activation = Activation::Identity;
                    let bias = &by_column[..];
                    let columns_alone = Epilogue::Columns { bias, activation, residual: None };
                    let residual = Some((Some(bias), &add[..]));
                    let residual = Epilogue::Columns { bias, activation, residual };
                    for epilogue in [Epilogue::Sum, of_rows, columns_alone, residual] {
                        let expected = |row: usize, column: usize| {
                            let (sum, add) = (sum(row, column), add[row * columns + column]);
                            let bias = by_column[column];
                            match epilogue {
                                Epilogue::Sum => sum,
                                Epilogue::Rows { .. } => {
                                    (sum * by_row[row] + by_row[row] + add).clamp(-50.0, 60.0)
                                }
                                Epilogue::Columns { residual: None, .. } => sum + bias,
                                Epilogue::Columns { .. } => (sum + bias) * bias + add,
                            }
                        };
                        let (b, size) = ((&b[..], b_row), [steps, columns]);
                        for b in [
                            RightMatrix::packed(vector, b, size),
                            RightMatrix::new(vector, b, size),
                        ] {
                            let name = format!("{} {}x{size:?}", body.name(), rows);
                            let job = Gemm { a: (&a, a_row), b: &b, rows, epilogue };
                            let mut out = vec![0.5; rows * out_row];
                            // SAFETY: only floats are written.
                            body.gemm(&job, (unsafe { as_uninit(&mut out) }, out_row));
                            for (row, out) in out.chunks_exact(out_row).enumerate() {
                                for (column, result) in out[..columns].iter().enumerate() {
                                    assert_eq!(
                                        *result,
                                        expected(row, column),
                                        "{name} {row} {column}"
                                    );
                                }
                                assert_eq!(out[columns..], [0.5], "{name}: beyond");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn matrices_that_are_too_small_are_refused() {
        let (body, all) = (bodies()[0], [1.0; 9]);
        let run = |a: usize, b: usize, out: usize| {
            let multiply = || {
                let b = RightMatrix::new(body.tile() / 2, (&all[..b], 3), [3, 3]);
                let job = Gemm { a: (&all[..a], 3), b: &b, rows: 2, epilogue: Epilogue::Sum };
                let mut room = [0.0; 9];
                // SAFETY: only floats are written.
                body.gemm(&job, (unsafe { as_uninit(&mut room[..out]) }, 3));
            };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(multiply)).is_ok()
        };
        assert!(run(6, 9, 6));
        assert!(!run(5, 9, 6), "a step leaves `a`");
        assert!(!run(6, 8, 6), "a step leaves `b`");
        assert!(!run(6, 9, 5), "a row leaves `out`");
    }
}
