//! The last columns of a product, which would fill little of a vector: sums by vectors of steps.

use std::mem::MaybeUninit;

use super::buffers::{Buffer, assume_init};
use super::gemm::Gemm;
use super::simd::{Simd, WIDEST};

/// Fewest steps whose sums are worth adding up the lanes of a vector.
const STEPS: usize = 64;

/// Floats in a block of the widest vectors.
const BLOCK: usize = WIDEST * WIDEST;

/// The last columns of a right matrix.
pub struct LastColumns {
    /// `[columns, steps]`, where there are columns.
    values: Option<Buffer>,
    steps: usize,
}

impl LastColumns {
    /// Number of the columns of a matrix `[steps, columns]` that vectors of so many floats leave to vectors of steps.
    pub fn count(width: usize, [steps, columns]: [usize; 2]) -> usize {
        let behind = columns % width;
        if 4 * behind <= width && steps >= STEPS { behind } else { 0 }
    }

    /// None.
    pub fn none(steps: usize) -> Self {
        Self { values: None, steps }
    }

    /// The `count` columns of which `write` writes a step.
    pub fn filled(count: usize, steps: usize, write: impl Fn(usize, &mut [f32])) -> Self {
        if count == 0 {
            return Self::none(steps);
        }
        let mut values = Buffer::stale(count * steps);
        let mut row = [0.0; WIDEST];
        for step in 0..steps {
            write(step, &mut row[..count]);
            values[step..].iter_mut().step_by(steps).zip(&row).for_each(|(to, from)| *to = *from);
        }
        Self { values: Some(values), steps }
    }

    /// `[columns, steps]`.
    #[inline(always)]
    fn values(&self) -> &[f32] {
        self.values.as_deref().unwrap_or_default()
    }

    /// Number of the columns.
    #[inline(always)]
    pub fn columns(&self) -> usize {
        self.values().len() / self.steps
    }

    /// Writes the columns, of which `first` is the number of the first, to `out`, whose rows are as far apart as given with it.
    #[inline(always)]
    pub fn gemm<S: Simd>(
        &self,
        simd: S,
        job: &Gemm<'_>,
        first: usize,
        out: (&mut [MaybeUninit<f32>], usize),
    ) {
        let columns = self.columns();
        // As many sums as a vector has lanes, when they are added up.
        match (columns, S::WIDTH / columns.max(1)) {
            (0, _) => {}
            (1, 4) => self.rows::<S, 4, 1>(simd, job, first, out),
            (1, 8) => self.rows::<S, 8, 1>(simd, job, first, out),
            (1, 16) => self.rows::<S, 16, 1>(simd, job, first, out),
            (2, 4) => self.rows::<S, 4, 2>(simd, job, first, out),
            (2, 8) => self.rows::<S, 8, 2>(simd, job, first, out),
            (3, 5) => self.rows::<S, 5, 3>(simd, job, first, out),
            (4, 4) => self.rows::<S, 4, 4>(simd, job, first, out),
            (more, _) => unreachable!("at most a quarter of a vector, not {more} columns"),
        }
    }

    #[inline(always)]
    fn rows<S: Simd, const R: usize, const C: usize>(
        &self,
        simd: S,
        job: &Gemm<'_>,
        first: usize,
        (out, out_row): (&mut [MaybeUninit<f32>], usize),
    ) {
        let Gemm { a: (a, a_row), rows, epilogue, .. } = *job;
        let columns = first + C;
        for begin in (0..rows).step_by(R) {
            // Behind the last row comes itself.
            let group: [&[f32]; R] =
                std::array::from_fn(|row| &a[(begin + row).min(rows - 1) * a_row..][..self.steps]);
            // SAFETY: every row and every column has all steps.
            let totals = unsafe { self.totals::<S, R, C>(simd, group) };
            for (row, totals) in (begin..rows).zip(totals.chunks_exact(C).take(R)) {
                let to = &mut out[row * out_row + first..][..C];
                let place = [first, columns];
                // SAFETY: a row has `C` totals and as many places, all of which are written.
                unsafe {
                    let sums = simd.read_up_to(totals.as_ptr(), C);
                    let value = match epilogue.row_map(simd, row, place, C) {
                        Some(map) => map.applied(simd, sums, 0, C),
                        None => sums,
                    };
                    simd.write_up_to(to.as_mut_ptr().cast(), C, value);
                    epilogue.row(simd, row, place, assume_init(to));
                }
            }
        }
    }

    /// The products of rows and columns, `[R, C]`.
    ///
    /// # Safety
    /// The rows have `steps` floats.
    #[inline(always)]
    unsafe fn totals<S: Simd, const R: usize, const C: usize>(
        &self,
        simd: S,
        rows: [&[f32]; R],
    ) -> [f32; WIDEST] {
        let mut sums = [[simd.splat(0.0); C]; R];
        let whole = self.steps - self.steps % S::WIDTH;
        for step in (0..whole).step_by(S::WIDTH) {
            // SAFETY: a vector of steps is left.
            unsafe { self.add(simd, rows, [step, S::WIDTH], &mut sums) };
        }
        if whole < self.steps {
            // SAFETY: so many steps are left.
            unsafe { self.add(simd, rows, [whole, self.steps - whole], &mut sums) };
        }
        let [mut block, mut turned] = [[0.0; BLOCK]; 2];
        for (at, sum) in sums.as_flattened().iter().enumerate() {
            simd.store(&mut block[at * S::WIDTH..], *sum);
        }
        simd.transpose((&block, S::WIDTH), (&mut turned, S::WIDTH), S::WIDTH);
        let mut total = simd.load(&turned);
        for lane in 1..S::WIDTH {
            total = simd.add(total, simd.load(&turned[lane * S::WIDTH..]));
        }
        let mut totals = [0.0; WIDEST];
        simd.store(&mut totals, total);
        totals
    }

    /// Adds the products of the `count` steps from `step` on to the lanes of the sums.
    ///
    /// # Safety
    /// The rows and columns have so many steps, and a vector as many or more.
    // Loops over constants: the sums stay in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const C: usize>(
        &self,
        simd: S,
        rows: [&[f32]; R],
        [step, count]: [usize; 2],
        sums: &mut [[S::Vector; C]; R],
    ) {
        let mut columns = [simd.splat(0.0); C];
        for c in 0..C {
            let from = self.values().as_ptr().wrapping_add(c * self.steps + step);
            // SAFETY: as the caller promises.
            columns[c] = unsafe { simd.read_up_to(from, count) };
        }
        for r in 0..R {
            // SAFETY: as the caller promises.
            let row = unsafe { simd.read_up_to(rows[r].as_ptr().add(step), count) };
            for c in 0..C {
                sums[r][c] = simd.mul_add(row, columns[c], sums[r][c]);
            }
        }
    }
}
