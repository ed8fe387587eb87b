//! Products of large matrices.

use rayon::prelude::*;

use super::buffers::Buffer;
use super::epilogue::Epilogue;
use super::simd::{Simd, with_rows};

/// A matrix as the product reads it: panels of few adjacent columns, step by step, with zeros behind the last.
pub struct Packed {
    values: Buffer,
    steps: usize,
    columns: usize,
    /// Floats of a vector.
    width: usize,
}

impl Packed {
    /// Of `b` `[steps, columns]` with rows as far apart as given with it, for vectors of so many floats.
    pub fn new(width: usize, (b, b_row): (&[f32], usize), [steps, columns]: [usize; 2]) -> Self {
        assert!(steps * columns > 0, "a matrix has elements");
        assert!(b.len() >= (steps - 1) * b_row + columns, "a step leaves `b`");
        let length = steps * columns.next_multiple_of(width);
        let mut packed = Self { values: Buffer::stale(length), steps, columns, width };
        let bounds: Vec<_> = (0..packed.panels()).map(|panel| packed.bounds(panel)).collect();
        let mut rest = &mut packed.values[..];
        let mut panels = Vec::with_capacity(bounds.len());
        for [from, to] in bounds {
            let (panel, behind) = rest.split_at_mut(steps * (to - from));
            panels.push((from, to - from, panel));
            rest = behind;
        }
        // Rows of `b` are read fastest as they lie, so panels are filled together.
        let tasks = (length / TASK).clamp(1, rayon::current_num_threads());
        let together = panels.len().div_ceil(tasks);
        panels.par_chunks_mut(together).for_each(|panels| {
            for (step, b) in b.chunks(b_row).take(steps).enumerate() {
                for (from, length, panel) in panels.iter_mut() {
                    let to = &mut panel[step * *length..][..*length];
                    let count = (*length).min(columns - *from);
                    to[..count].copy_from_slice(&b[*from..][..count]);
                    to[count..].fill(0.0);
                }
            }
        });
        packed
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(self.width).div_ceil(VECTORS)
    }

    /// First column of a panel, and of the next one; they are of nearly equal width.
    fn bounds(&self, panel: usize) -> [usize; 2] {
        let vectors = self.columns.div_ceil(self.width);
        [panel, panel + 1].map(|panel| panel * vectors / self.panels() * self.width)
    }
}

/// The product `a b` and what becomes of it.
#[derive(Clone, Copy)]
pub struct Gemm<'a> {
    /// `[rows, steps]`, rows as far apart as given with it.
    pub a: (&'a [f32], usize),
    /// `[steps, columns]`.
    pub b: &'a Packed,
    /// Number of rows.
    pub rows: usize,
    /// What is written in the product's place.
    pub epilogue: Epilogue<'a>,
}

/// Most vectors of a row at once.
const VECTORS: usize = 3;

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 16;

/// Computes `job` into `out`, `[rows, columns]` with rows as far apart as given with it.
#[inline(always)]
pub fn gemm<S: Simd>(simd: S, job: &Gemm<'_>, (out, out_row): (&mut [f32], usize)) {
    let Gemm { a: (a, a_row), b, rows, epilogue } = *job;
    let (steps, columns) = (b.steps, b.columns);
    if rows == 0 {
        return;
    }
    assert!(b.width == S::WIDTH, "packed for vectors of {}", b.width);
    assert!(a.len() >= (rows - 1) * a_row + steps, "a step leaves `a`");
    assert!(out.len() >= (rows - 1) * out_row + columns, "a row for each of `a`");
    epilogue.check(rows, columns);
    for panel in 0..b.panels() {
        let [first, end] = b.bounds(panel);
        let packed = &b.values[steps * first..steps * end];
        let part = Panel { packed, steps, a, a_row, first, width: end.min(columns) - first };
        let (rows, out) = ((rows, columns, epilogue), (&mut *out, out_row));
        match (end - first) / S::WIDTH {
            1 => panel_of::<S, 1>(simd, &part, rows, out),
            2 => panel_of::<S, 2>(simd, &part, rows, out),
            3 => panel_of::<S, 3>(simd, &part, rows, out),
            more => unreachable!("a panel has 1 to {VECTORS} vectors, not {more}"),
        }
    }
}

/// Adjacent columns of `b`, whole vectors of them for every step.
struct Panel<'a> {
    packed: &'a [f32],
    steps: usize,
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
    (rows, columns, epilogue): (usize, usize, Epilogue<'_>),
    (out, out_row): (&mut [f32], usize),
) {
    let most = (2 * S::ROWS / V).min(14);
    let groups = rows.div_ceil(most);
    // Groups of nearly equal length: a short last group would wait on the latency of its sums.
    let bound = |group: usize| group * rows / groups;
    for group in 0..groups {
        let (from, to) = (bound(group), bound(group + 1));
        let a = &panel.a[from * panel.a_row..];
        let out = &mut out[from * out_row + panel.first..];
        // SAFETY: `gemm` has checked that `a` and `out` have these rows.
        unsafe {
            with_rows!(to - from, most, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], |N| {
                group_of::<S, N, V>(simd, panel, a, (&mut *out, out_row))
            });
        }
        for row in from..to {
            let out = &mut out[(row - from) * out_row..][..panel.width];
            epilogue.row(simd, row, [panel.first, columns], out);
        }
    }
}

/// Writes the sums of `N` rows.
///
/// # Safety
/// `a` and `out` have these rows.
#[inline(always)]
unsafe fn group_of<S: Simd, const N: usize, const V: usize>(
    simd: S,
    panel: &Panel<'_>,
    a: &[f32],
    (out, out_row): (&mut [f32], usize),
) {
    let mut sums = [[simd.splat(0.0); V]; N];
    let bases: [*const f32; N] =
        std::array::from_fn(|row| a.as_ptr().wrapping_add(row * panel.a_row));
    let mut b = panel.packed.as_ptr();
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
        b = b.wrapping_add(V * S::WIDTH);
    }
    for (row, sums) in sums.into_iter().enumerate() {
        let to = &mut out[row * out_row..];
        for (v, sum) in sums.into_iter().enumerate() {
            match panel.width - v * S::WIDTH {
                left if left < S::WIDTH => {
                    // SAFETY: so many columns are left of the row.
                    unsafe { simd.write_first(to[v * S::WIDTH..].as_mut_ptr(), left, sum) };
                }
                _ => simd.store(&mut to[v * S::WIDTH..], sum),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::epilogue::Activation;
    use crate::cpu::instruction_set::bodies;
    use crate::cpu::integers;

    /// Integers, so that sums do not depend on their order.
    #[test]
    fn any_size_is_multiplied() {
        for body in bodies() {
            let vector = body.tile() / 2;
            for columns in [1, vector - 1, vector, 2 * vector + 1, 3 * vector, 4 * vector + 3] {
                for (rows, steps) in [(1, 1), (2, 7), (9, 3), (13, 2), (29, 5)] {
                    let size = [rows, steps, columns];
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
                    let columns_alone = Epilogue::Columns { bias: &by_column, activation };
                    let residual =
                        Epilogue::Residual { bias: &by_column, scale: Some(&by_column), add: &add };
                    for epilogue in [Epilogue::Sum, of_rows, columns_alone, residual] {
                        let wanted = |row: usize, column: usize| {
                            let (sum, add) = (sum(row, column), add[row * columns + column]);
                            let bias = by_column[column];
                            match epilogue {
                                Epilogue::Sum => sum,
                                Epilogue::Rows { .. } => {
                                    (sum * by_row[row] + by_row[row]).clamp(-50.0, 60.0) + add
                                }
                                Epilogue::Columns { .. } => sum + bias,
                                Epilogue::Residual { .. } => (sum + bias) * bias + add,
                            }
                        };
                        let packed = Packed::new(vector, (&b, b_row), [steps, columns]);
                        let job = Gemm { a: (&a, a_row), b: &packed, rows, epilogue };
                        let mut out = vec![0.5; rows * out_row];
                        body.gemm(&job, (&mut out, out_row));
                        for (row, out) in out.chunks_exact(out_row).enumerate() {
                            for (column, found) in out[..columns].iter().enumerate() {
                                let name = body.name();
                                let wanted = wanted(row, column);
                                assert_eq!(*found, wanted, "{name} {size:?} {row} {column}");
                            }
                            assert_eq!(out[columns..], [0.5], "{} {size:?}: beyond", body.name());
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
                let b = Packed::new(body.tile() / 2, (&all[..b], 3), [3, 3]);
                let job = Gemm { a: (&all[..a], 3), b: &b, rows: 2, epilogue: Epilogue::Sum };
                body.gemm(&job, (&mut [0.0; 9][..out], 3));
            };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(multiply)).is_ok()
        };
        assert!(run(6, 9, 6));
        assert!(!run(5, 9, 6), "a step leaves `a`");
        assert!(!run(6, 8, 6), "a step leaves `b`");
        assert!(!run(6, 9, 5), "a row leaves `out`");
    }
}
