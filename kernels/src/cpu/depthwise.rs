//! Convolution of one channel by itself.

use super::buffers::Buffer;
use super::simd::{Simd, WIDEST};

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
    /// What sums are multiplied with, and what is added then.
    pub map: [f32; 2],
    /// Least and largest value that is written.
    pub bounds: [f32; 2],
}

/// Writes the plane of `job.out` pixels.
#[inline(always)]
pub fn depthwise<S: Simd>(simd: S, job: &Depthwise<'_>, out: &mut [f32]) {
    match job.filter.len() {
        9 => filtered::<S, 3>(simd, job, out),
        25 => filtered::<S, 5>(simd, job, out),
        taps => unreachable!("a window of 3 or 5, not {taps} taps"),
    }
}

/// A plane with zeros around it, row by row; at stride 2 even columns first in each row, then odd ones, so that
/// neighbouring outputs always have neighbouring inputs.
struct Padded {
    values: Buffer,
    /// Floats of a row, and from its even columns to its odd ones.
    row: usize,
    half: usize,
}

#[inline(always)]
fn padded<const K: usize>(job: &Depthwise<'_>) -> Padded {
    let ([h, w], [rows, columns], [top, left]) = (job.size, job.out, job.before);
    // So many columns of each parity are read, the last vector maybe beyond the row's end.
    let half = columns.next_multiple_of(WIDEST) + K;
    let row = job.stride * half;
    let mut values = Buffer::zeros(((rows - 1) * job.stride + K) * row);
    for (y, from) in job.x.chunks_exact(w).take(h).enumerate() {
        let Some(to) = values.chunks_exact_mut(row).nth(top + y) else { break };
        if job.stride == 1 {
            let count = w.min(row - left);
            to[left..][..count].copy_from_slice(&from[..count]);
            continue;
        }
        for (x, value) in from.iter().enumerate() {
            let place = left + x;
            if place / 2 < half {
                to[place % 2 * half + place / 2] = *value;
            }
        }
    }
    Padded { values, row, half }
}

#[inline(always)]
fn filtered<S: Simd, const K: usize>(simd: S, job: &Depthwise<'_>, out: &mut [f32]) {
    let Padded { values, row, half } = padded::<K>(job);
    let columns = job.out[1];
    let mut filter = [[simd.splat(0.0); K]; K];
    for (taps, values) in filter.iter_mut().zip(job.filter.chunks_exact(K)) {
        for (tap, value) in taps.iter_mut().zip(values) {
            *tap = simd.splat(*value);
        }
    }
    let [scale, shift] = job.map.map(|value| simd.splat(value));
    let [least, most] = [job.bounds[0], -job.bounds[1]].map(|value| simd.splat(value));
    for (y, out) in out.chunks_exact_mut(columns).enumerate() {
        let rows = &values[y * job.stride * row..][..K * row];
        for first in (0..columns).step_by(S::WIDTH) {
            let mut sum = simd.splat(0.0);
            for (taps, row) in filter.iter().zip(rows.chunks_exact(row)) {
                for (j, tap) in taps.iter().enumerate() {
                    let place = match job.stride {
                        1 => first + j,
                        _ => j % 2 * half + first + j / 2,
                    };
                    sum = simd.mul_add(simd.load(&row[place..]), *tap, sum);
                }
            }
            let value = simd.max(simd.mul_add(sum, scale, shift), least);
            // The smaller of two is what the larger of their opposites is the opposite of.
            let opposite = simd.max(simd.sub(simd.splat(0.0), value), most);
            let value = simd.sub(simd.splat(0.0), opposite);
            match columns - first {
                left if left < S::WIDTH => {
                    // SAFETY: so many pixels are left of the row.
                    unsafe { simd.write_first(out[first..].as_mut_ptr(), left, value) };
                }
                _ => simd.store(&mut out[first..], value),
            }
        }
    }
}
