//! The contraction behind the convolution and both of its gradients.

use super::simd::{Simd, even_parts, with_rows};

/// Consecutive steps of a contraction.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Where the scalars of the first step lie, relative to each row's base.
    pub a: usize,
    /// Where the vectors of the first step lie.
    pub b: usize,
    /// Number of steps.
    pub len: usize,
}

/// Offsets of the tiles of a contraction's rows.
#[derive(Clone, Copy)]
pub enum RowOffsets<'a> {
    /// Multiples of this stride.
    Strided(usize),
    /// One offset a row.
    Indexed(&'a [usize]),
}

impl RowOffsets<'_> {
    #[inline(always)]
    fn place(&self, row: usize) -> usize {
        match self {
            RowOffsets::Strided(step) => row * step,
            RowOffsets::Indexed(places) => places[row],
        }
    }

    /// The last place of so many rows.
    fn last(&self, rows: usize) -> usize {
        match self {
            RowOffsets::Strided(step) => rows.saturating_sub(1) * step,
            RowOffsets::Indexed(places) => places[..rows].iter().copied().max().unwrap_or(0),
        }
    }
}

/// `out[r, :] = sum over steps s of a[rows[r] + a(s)] * b[b(s), :]`, for tiles of channels.
///
/// - Convolution: rows are output pixels, steps are (input channel, tap), `b` the weight.
/// - Gradient of the weight: rows are (input channel, tap), steps are pixels, `b` the output's
///   gradient.
pub struct Contraction<'a> {
    /// The scalars to broadcast.
    pub a: &'a [f32],
    /// Base in `a` of every row.
    pub rows: &'a [usize],
    /// The vectors.
    pub b: &'a [f32],
    /// The steps.
    pub runs: &'a [Run],
    /// Distances between the scalars and between the vectors of adjacent steps of a run.
    pub a_step: usize,
    /// See `a_step`.
    pub b_step: usize,
    /// Where the tiles of the rows lie in `out`.
    pub to: RowOffsets<'a>,
    /// Adds to `out` instead of replacing it.
    pub accumulate: bool,
}

impl Contraction<'_> {
    /// Panics unless every row and step stays inside `a` and `b`, whose vectors are `tile` wide.
    fn check(&self, tile: usize) {
        let base = self.rows.iter().copied().max().unwrap_or(0);
        for run in self.runs.iter().filter(|run| run.len > 0) {
            let last = run.len - 1;
            assert!(base + run.a + last * self.a_step < self.a.len(), "a step leaves `a`");
            assert!(run.b + last * self.b_step + tile <= self.b.len(), "a step leaves `b`");
        }
    }
}

/// Computes `job` into `out`, a tile for each row.
#[inline(always)]
pub fn contract<S: Simd>(simd: S, job: &Contraction<'_>, out: &mut [f32]) {
    assert!(out.len() >= job.to.last(job.rows.len()) + S::TILE, "a tile for each row");
    job.check(S::TILE);
    let rows = job.rows.len();
    for [from, to] in even_parts(rows, rows.div_ceil(S::ROWS)) {
        // SAFETY: `check` holds, and `from` starts as many rows as are matched.
        unsafe {
            with_rows!(to - from, S::ROWS, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], |N| {
                group_of::<S, N>(simd, job, from, out)
            });
        }
    }
}

/// Computes the `N` rows from `first` on in registers.
///
/// # Safety
/// `job` has these rows, and `job.check` holds.
#[inline(always)]
unsafe fn group_of<S: Simd, const N: usize>(
    simd: S,
    job: &Contraction<'_>,
    first: usize,
    out: &mut [f32],
) {
    let rows = &job.rows[first..first + N];
    let mut sums = [[simd.splat(0.0); 2]; N];
    let bases: [*const f32; N] = std::array::from_fn(|i| job.a.as_ptr().wrapping_add(rows[i]));
    for run in job.runs {
        let mut step = run.a;
        let mut b = job.b.as_ptr().wrapping_add(run.b);
        for _ in 0..run.len {
            // SAFETY: `check` keeps every base, step and vector inside `a` and `b`.
            unsafe {
                let vectors = [simd.read(b), simd.read(b.add(S::WIDTH))];
                for i in 0..N {
                    let scalar = simd.splat(*bases[i].add(step));
                    sums[i][0] = simd.mul_add(scalar, vectors[0], sums[i][0]);
                    sums[i][1] = simd.mul_add(scalar, vectors[1], sums[i][1]);
                }
            }
            step += job.a_step;
            b = b.wrapping_add(job.b_step);
        }
    }
    for (i, sum) in sums.into_iter().enumerate() {
        let to = &mut out[job.to.place(first + i)..];
        if job.accumulate {
            simd.add_tile(to, sum);
        } else {
            simd.store(to, sum[0]);
            simd.store(&mut to[S::WIDTH..], sum[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contraction, RowOffsets, Run};
    use crate::instruction_set::bodies;
    use crate::integers;

    #[test]
    fn any_number_of_rows_and_steps_is_summed() {
        for body in bodies() {
            let tile = body.tile();
            let (a, b) = (integers(200, 0), integers(40 * tile, 0));
            for count in 1..=43 {
                let rows: Vec<usize> = (0..count).map(|row| row * 7 % 50).collect();
                let runs = [(0, 3, 5), (90, 0, 1), (4, 2, 0), (20, 11, 6)];
                let runs = runs.map(|(a, b, len)| Run { a, b: b * tile, len });
                for accumulate in [false, true] {
                    let (a_step, b_step) = (2, 3 * tile);
                    let (a, b, rows, runs) = (&a[..], &b[..], &rows[..], &runs[..]);
                    let to = RowOffsets::Strided(tile);
                    let job = Contraction { a, rows, b, runs, a_step, b_step, to, accumulate };
                    let mut out = integers(count * tile, 0);
                    let mut expected = if accumulate { out.clone() } else { vec![0.0; out.len()] };
                    for (i, expected) in expected.iter_mut().enumerate() {
                        for (run, step) in runs.iter().flat_map(|r| (0..r.len).map(move |s| (r, s)))
                        {
                            let scalar = a[rows[i / tile] + run.a + step * a_step];
                            *expected += scalar * b[run.b + step * b_step + i % tile];
                        }
                    }
                    body.contract(&job, &mut out);
                    assert_eq!(out, expected, "{} with {count} rows", body.name());
                }
            }
        }
    }

    #[test]
    fn rows_are_written_as_far_apart_as_asked() {
        for body in bodies() {
            let tile = body.tile();
            let (a, b, runs) =
                (&integers(9, 0)[..], &integers(tile, 0)[..], &[Run { a: 0, b: 0, len: 1 }]);
            let rows: Vec<usize> = (0..9).collect();
            let (rows, out_step) = (&rows[..], tile + 3);
            let (a_step, b_step, accumulate) = (0, 0, false);
            let to = RowOffsets::Strided(out_step);
            let job = Contraction { a, rows, b, runs, a_step, b_step, to, accumulate };
            let mut out = vec![7.0; 8 * out_step + tile];
            body.contract(&job, &mut out);
            for (i, out) in out.iter().enumerate() {
                let (row, lane) = (i / out_step, i % out_step);
                let expected = if lane < tile { a[row] * b[lane] } else { 7.0 };
                assert_eq!(*out, expected, "{} row {row} lane {lane}", body.name());
            }
            let short = || body.contract(&job, &mut vec![0.0; 8 * out_step + tile - 1]);
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(short));
            assert!(refused.is_err(), "{}", body.name());

            let places: Vec<usize> = rows.iter().map(|row| (8 - row) * out_step).collect();
            let mut turned = vec![7.0; out.len()];
            body.contract(&Contraction { to: RowOffsets::Indexed(&places), ..job }, &mut turned);
            for (row, place) in places.into_iter().enumerate() {
                assert_eq!(turned[place..][..tile], out[row * out_step..][..tile]);
            }
        }
    }

    #[test]
    fn steps_outside_are_refused() {
        for body in bodies() {
            let tile = body.tile();
            let (a, b) = (integers(10, 0), integers(4 * tile, 0));
            let run = |a, b, len| Run { a, b, len };
            for run in [run(2, 0, 4), run(0, 1, 4), run(8, 0, 1), run(0, 3 * tile + 1, 1)] {
                let runs = [run];
                let (rows, a_step, b_step) = (&[2][..], 2, tile);
                let (a, b, runs) = (&a[..], &b[..], &runs[..]);
                let (to, accumulate) = (RowOffsets::Strided(tile), false);
                let job = Contraction { a, rows, b, runs, a_step, b_step, to, accumulate };
                let go = || body.contract(&job, &mut vec![0.0; tile]);
                let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(go)).is_err();
                assert!(refused, "{} took {run:?}", body.name());
            }
        }
    }
}
