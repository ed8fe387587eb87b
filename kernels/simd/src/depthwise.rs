//! Convolution of one channel by itself.

use std::mem::MaybeUninit;

use super::simd::{Simd, WIDEST, with_rows};

/// A plane, its filter, and what becomes of the sums.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise<'a> {
    /// `[h, w]`.
    pub x: &'a [f32],
    /// Height and width.
    pub size: [usize; 2],
    /// `[window, window]`; the window is 3 or 5.
    pub filter: &'a [f32],
    /// 1 or 2.
    pub stride: usize,
    /// Zeros above and to the left.
    pub before: [usize; 2],
    /// Height and width of what is written.
    pub out: [usize; 2],
    /// Factor and summand of the sums.
    pub map: [f32; 2],
    /// Least and largest value that is written.
    pub bounds: [f32; 2],
}

/// Writes all pixels of the plane. `padded` has [`padded_floats`] floats: zeros before the first plane, then what the
/// plane before left there, if its job differed in nothing but its pixels, filter and map.
#[inline(always)]
pub fn depthwise<S: Simd>(
    simd: S,
    job: &Depthwise<'_>,
    padded: &mut [f32],
    out: &mut [MaybeUninit<f32>],
) {
    match job.filter.len() {
        9 => filtered::<S, 3>(simd, job, padded, out),
        25 => filtered::<S, 5>(simd, job, padded, out),
        taps => unreachable!("a window of 3 or 5, not {taps} taps"),
    }
}

/// Layout of a plane with zeros around it, row by row; at stride 2 even columns first in each row, then odd ones, so
/// that neighbouring outputs always have neighbouring inputs.
#[derive(Clone, Copy)]
struct Layout {
    /// Floats of a row, and from its even columns to its odd ones.
    row: usize,
    half: usize,
    rows: usize,
}

impl Layout {
    fn new(job: &Depthwise<'_>, window: usize) -> Self {
        // So many columns of each parity are read, the last vector maybe beyond the row's end.
        let half = job.out[1].next_multiple_of(WIDEST) + window;
        let rows = (job.out[0] - 1) * job.stride + window;
        Self { row: job.stride * half, half, rows }
    }
}

/// Floats of padded memory that planes like this one take in turn.
pub fn padded_floats(job: &Depthwise<'_>) -> usize {
    let layout = Layout::new(job, job.filter.len().isqrt());
    layout.rows * layout.row
}

/// Copies the pixels of a plane between its zeros.
#[inline(always)]
fn pad<S: Simd>(simd: S, job: &Depthwise<'_>, layout: Layout, padded: &mut [f32]) {
    let (w, [top, left]) = (job.size[1], job.before);
    for (from, to) in job.x.chunks_exact(w).zip(padded.chunks_exact_mut(layout.row).skip(top)) {
        if job.stride == 1 {
            let to = &mut to[left..];
            let count = w.min(to.len());
            for at in (0..count).step_by(S::WIDTH) {
                let left = (count - at).min(S::WIDTH);
                // SAFETY: so many floats are left of both rows.
                unsafe {
                    let vector = simd.read_up_to(from.as_ptr().add(at), left);
                    simd.write_up_to(to.as_mut_ptr().add(at), left, vector);
                }
            }
            continue;
        }
        let (even, odd) = to.split_at_mut(layout.half);
        let (first, second) = if left.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        let (first, second) = (&mut first[left / 2..], &mut second[left.div_ceil(2)..]);
        first.iter_mut().zip(from.iter().step_by(2)).for_each(|(to, from)| *to = *from);
        second.iter_mut().zip(from[1..].iter().step_by(2)).for_each(|(to, from)| *to = *from);
    }
}

/// Rows that are computed together, so that those they share are read once.
const ROWS: usize = 4;

#[inline(always)]
fn filtered<S: Simd, const K: usize>(
    simd: S,
    job: &Depthwise<'_>,
    padded: &mut [f32],
    out: &mut [MaybeUninit<f32>],
) {
    let (layout, columns) = (Layout::new(job, K), job.out[1]);
    let padded = &mut padded[..layout.rows * layout.row];
    pad(simd, job, layout, padded);
    let mut filter = [[0.0; K]; K];
    filter.iter_mut().zip(job.filter.chunks_exact(K)).for_each(|(to, from)| {
        to.copy_from_slice(from);
    });
    for (group, out) in out.chunks_mut(ROWS * columns).enumerate() {
        let from = (&filter, &padded[group * ROWS * job.stride * layout.row..]);
        with_rows!(out.len() / columns, ROWS, [1 2 3 4], |R| match job.stride {
            1 => rows_of::<S, K, 1, R>(simd, job, layout, from, out),
            _ => rows_of::<S, K, 2, R>(simd, job, layout, from, out),
        });
    }
}

/// Computes `R` rows of the output; the padded plane begins with the first row that they read.
// Loops over constants, which become constant places: the sums stay in registers.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn rows_of<S: Simd, const K: usize, const STRIDE: usize, const R: usize>(
    simd: S,
    job: &Depthwise<'_>,
    layout: Layout,
    (filter, padded): (&[[f32; K]; K], &[f32]),
    out: &mut [MaybeUninit<f32>],
) {
    let columns = job.out[1];
    let [scale, shift] = job.map.map(|value| simd.splat(value));
    let [least, most] = job.bounds.map(|value| simd.splat(value));
    for first in (0..columns).step_by(S::WIDTH) {
        let mut sums = [simd.splat(0.0); R];
        for y in 0..(R - 1) * STRIDE + K {
            let row = &padded[y * layout.row..][..layout.row];
            for j in 0..K {
                let place = if STRIDE == 1 { j } else { j % 2 * layout.half + j / 2 };
                let x = simd.load(&row[first + place..]);
                for r in 0..R {
                    // Row `y` of those that are read is row `i` of the window of output `r`.
                    let i = y.wrapping_sub(r * STRIDE);
                    if i < K {
                        sums[r] = simd.mul_add(x, simd.splat(filter[i][j]), sums[r]);
                    }
                }
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            let value = simd.min(simd.max(simd.mul_add(sum, scale, shift), least), most);
            let count = (columns - first).min(S::WIDTH);
            let to = out[r * columns + first..][..count].as_mut_ptr().cast();
            // SAFETY: so many pixels are left of the row.
            unsafe { simd.write_up_to(to, count, value) };
        }
    }
}

/// Adds to `sums` `[window, window]` the gradient of the filter, of the plane and the gradient `dy` of what is written.
/// Filter, map and bounds do not matter but for the length of the filter; `padded` is as for [`depthwise`].
#[inline(always)]
pub fn depthwise_weight<S: Simd>(
    simd: S,
    job: &Depthwise<'_>,
    dy: &[f32],
    padded: &mut [f32],
    sums: &mut [f32],
) {
    match (job.filter.len(), job.stride) {
        (9, 1) => correlated::<S, 3, 1>(simd, job, dy, padded, sums),
        (9, _) => correlated::<S, 3, 2>(simd, job, dy, padded, sums),
        (25, 1) => correlated::<S, 5, 1>(simd, job, dy, padded, sums),
        (25, _) => correlated::<S, 5, 2>(simd, job, dy, padded, sums),
        (taps, _) => unreachable!("a window of 3 or 5, not {taps} taps"),
    }
}

// Loops over constants, which become constant places: the sums stay in registers.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn correlated<S: Simd, const K: usize, const STRIDE: usize>(
    simd: S,
    job: &Depthwise<'_>,
    dy: &[f32],
    padded: &mut [f32],
    sums: &mut [f32],
) {
    let (layout, columns) = (Layout::new(job, K), job.out[1]);
    let padded = &mut padded[..layout.rows * layout.row];
    pad(simd, job, layout, padded);
    let mut parts = [[simd.splat(0.0); K]; K];
    for (row, dy) in dy.chunks_exact(columns).enumerate() {
        let rows = &padded[row * STRIDE * layout.row..];
        for first in (0..columns).step_by(S::WIDTH) {
            let count = (columns - first).min(S::WIDTH);
            // SAFETY: so many floats are left of the row.
            let dy = unsafe { simd.read_up_to(dy.as_ptr().add(first), count) };
            for i in 0..K {
                for j in 0..K {
                    let place = if STRIDE == 1 { j } else { j % 2 * layout.half + j / 2 };
                    let x = simd.load(&rows[i * layout.row + first + place..]);
                    parts[i][j] = simd.mul_add(x, dy, parts[i][j]);
                }
            }
        }
    }
    for (sum, part) in sums.iter_mut().zip(parts.as_flattened()) {
        *sum += simd.sum(*part);
    }
}
