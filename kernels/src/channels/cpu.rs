//! CPU bodies over `[n, c, h, w]`, plane by plane.
//!
//! Every plane has its own sums, which are added in their order, so the results do not depend on
//! the number of threads.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

use fewshot_simd::buffers::{in_parts, zero_filled};
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::moments::Moments;
use fewshot_simd::planes::Line;
use rayon::prelude::*;

use crate::environment::chosen;

/// Floats that are summed in single precision.
const PIECE: usize = 4096;

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 14;

/// Planes that are worth a task of their own.
pub fn task(plane: usize) -> usize {
    TASK.div_ceil(plane)
}

/// Mean and biased variance of every channel, `[2, c]`.
pub fn moments(x: &[f32], channels: usize, plane: usize) -> Vec<f32> {
    let sums = by_piece::<3>(x, plane, |body, _, range, out| {
        body.plane_deviations(&x[range], out);
    });
    let mut total = Moments::empty(channels);
    for (p, sums) in sums.chunks_exact(3 * pieces(plane)).enumerate() {
        for (i, sums) in sums.chunks_exact(3).enumerate() {
            let pixels = PIECE.min(plane - i * PIECE);
            total.add_tile(p % channels, pixels, sums);
        }
    }
    let means = (0..channels).map(|c| total.channel(c).0 as f32);
    means.chain((0..channels).map(|c| total.channel(c).1 as f32)).collect()
}

/// The sums of `g` and of `g * (x - centre)` over every channel, `[2, c]`.
pub fn correlate(g: &[f32], x: &[f32], centre: &[f32], plane: usize) -> Vec<f32> {
    let channels = centre.len();
    let sums = by_piece::<2>(g, plane, |body, p, range, out| {
        body.plane_correlate(&g[range.clone()], &x[range], centre[p % channels], out);
    });
    let mut totals = vec![0.0f64; 2 * channels];
    for (p, sums) in sums.chunks_exact(2 * pieces(plane)).enumerate() {
        for sums in sums.chunks_exact(2) {
            totals[p % channels] += f64::from(sums[0]);
            totals[channels + p % channels] += f64::from(sums[1]);
        }
    }
    totals.into_iter().map(|total| total as f32).collect()
}

/// `(x - centre) * scale + shift`, in the place of `x` if that is owned.
pub fn affine(x: Cow<'_, [f32]>, map: [&[f32]; 3], plane: usize) -> Vec<f32> {
    let body = chosen();
    replace(x, plane, |p, x| {
        let c = p % map[0].len();
        let line = Line { centre: map[0][c], scale: map[1][c], shift: map[2][c] };
        body.plane_affine(line, x);
    })
}

/// The sum of `(x - centre) * scale` over two maps, in the place of the first if that is owned;
/// `a` is its centre and its scale, the other map comes with its own.
pub fn combine(
    x: Cow<'_, [f32]>,
    a: [&[f32]; 2],
    [b, b_centre, b_scale]: [&[f32]; 3],
    plane: usize,
) -> Vec<f32> {
    let body = chosen();
    replace(x, plane, |p, x| {
        let c = p % a[0].len();
        let of_a = Line { centre: a[0][c], scale: a[1][c], shift: 0.0 };
        let of_b = Line { centre: b_centre[c], scale: b_scale[c], shift: 0.0 };
        body.plane_combine(of_a, (&b[p * plane..(p + 1) * plane], of_b), x);
    })
}

/// Changes every plane, given its number. Fresh memory costs more than the arithmetic does here, so
/// what is owned is changed in its place.
pub fn replace(
    x: Cow<'_, [f32]>,
    plane: usize,
    change: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut out = match x {
        Cow::Owned(x) => x,
        Cow::Borrowed(x) => {
            return planes(x.len() / plane, [plane; 2], |p, out| {
                out.copy_from_slice(&x[p * plane..(p + 1) * plane]);
                change(p, out);
            });
        }
    };
    let each = out.par_chunks_exact_mut(plane).enumerate().with_min_len(task(plane));
    each.for_each(|(p, out)| change(p, out));
    out
}

/// So many new planes of `plane` floats: `write` is given the number of each and its zeros, and reads as many as `read`
/// floats for it. Zeros are still in the cache when they are written over, as those of the whole would not be.
pub fn planes(
    count: usize,
    [plane, read]: [usize; 2],
    write: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    if count * plane == 0 {
        return Vec::new();
    }
    let each = task(plane.max(read));
    let write_some = |_: &(), [_, first]: [usize; 2], out: &mut [MaybeUninit<f32>]| {
        let planes = zero_filled(out).chunks_exact_mut(plane).enumerate();
        planes.for_each(|(p, out)| write(first * each + p, out));
    };
    // SAFETY: all are zeros at least.
    unsafe { in_parts(1, [count * plane, each * plane], |_| (), write_some) }
}

/// Mean of every plane.
pub fn means(x: &[f32], plane: usize) -> Vec<f32> {
    let sums = by_piece::<1>(x, plane, |body, _, range, out| {
        body.plane_sum(&x[range], &mut out[0]);
    });
    let mean = |sums: &[f32]| {
        let total: f64 = sums.iter().copied().map(f64::from).sum();
        (total / plane as f64) as f32
    };
    sums.chunks_exact(pieces(plane)).map(mean).collect()
}

/// Every value of `u` over the pixels of a plane, divided by their number.
pub fn spread(u: &[f32], plane: usize) -> Vec<f32> {
    planes(u.len(), [plane; 2], |p, out| out.fill(u[p] / plane as f32))
}

/// Rows of so many values with the two dimensions before them swapped.
pub fn swapped(values: Vec<f32>, [outer, inner]: [usize; 2], row: usize) -> Vec<f32> {
    if outer == 1 || inner == 1 {
        return values;
    }
    let rows = (0..inner).flat_map(|place| (0..outer).map(move |of| (of * inner + place) * row));
    rows.flat_map(|from| &values[from..from + row]).copied().collect()
}

fn pieces(plane: usize) -> usize {
    plane.div_ceil(PIECE)
}

/// `N` sums of every piece of every plane: `sum` is given the plane, and the piece's range in `x`.
fn by_piece<const N: usize>(
    x: &[f32],
    plane: usize,
    sum: impl Fn(&dyn InstructionSet, usize, Range<usize>, &mut [f32]) + Sync,
) -> Vec<f32> {
    let (body, planes) = (chosen(), x.len() / plane);
    let mut sums = vec![0.0; planes * pieces(plane) * N];
    let parts = sums.par_chunks_exact_mut(pieces(plane) * N).enumerate();
    parts.with_min_len(task(plane)).for_each(|(p, sums)| {
        for (i, sums) in sums.chunks_exact_mut(N).enumerate() {
            let start = p * plane + i * PIECE;
            sum(body, p, start..((p + 1) * plane).min(start + PIECE), sums);
        }
    });
    sums
}
