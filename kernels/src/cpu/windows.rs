//! The 2x2 windows of a plane `[h, w]`; an odd last row or column is in none.

use super::simd::Simd;

/// Writes the largest value of every window, or NaN where there is one.
#[inline(always)]
pub fn pool<S: Simd>(_: S, x: &[f32], w: usize, out: &mut [f32]) {
    for (pair, out) in x.chunks_exact(2 * w).zip(out.chunks_exact_mut(w / 2)) {
        let (top, bottom) = pair.split_at(w);
        let windows = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        for ((top, bottom), out) in windows.zip(out) {
            *out = largest([top[0], top[1], bottom[0], bottom[1]]);
        }
    }
}

/// Writes `dy` to the first largest pixel of every window and zero to its others.
#[inline(always)]
pub fn scatter<S: Simd>(_: S, x: &[f32], w: usize, dy: &[f32], dx: &mut [f32]) {
    let rows = x.chunks_exact(2 * w).zip(dx.chunks_exact_mut(2 * w));
    for ((x, dx), dy) in rows.zip(dy.chunks_exact(w / 2)) {
        let ((top, bottom), (above, below)) = (x.split_at(w), dx.split_at_mut(w));
        let windows = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        let targets = above.chunks_exact_mut(2).zip(below.chunks_exact_mut(2));
        for (((top, bottom), (above, below)), dy) in windows.zip(targets).zip(dy) {
            let [first, second, third, fourth] = winner([top[0], top[1], bottom[0], bottom[1]]);
            above[0] = if first { *dy } else { 0.0 };
            above[1] = if second { *dy } else { 0.0 };
            below[0] = if third { *dy } else { 0.0 };
            below[1] = if fourth { *dy } else { 0.0 };
        }
    }
}

/// Writes the value of `u` at the first largest pixel of every window of `x`.
#[inline(always)]
pub fn gather<S: Simd>(_: S, x: &[f32], w: usize, u: &[f32], out: &mut [f32]) {
    let rows = x.chunks_exact(2 * w).zip(u.chunks_exact(2 * w));
    for ((x, u), out) in rows.zip(out.chunks_exact_mut(w / 2)) {
        let ((top, bottom), (above, below)) = (x.split_at(w), u.split_at(w));
        let windows = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        let values = above.chunks_exact(2).zip(below.chunks_exact(2));
        for (((top, bottom), (above, below)), out) in windows.zip(values).zip(out) {
            let [first, second, third, _] = winner([top[0], top[1], bottom[0], bottom[1]]);
            let lower = if third { below[0] } else { below[1] };
            let others = if second { above[1] } else { lower };
            *out = if first { above[0] } else { others };
        }
    }
}

#[inline(always)]
fn largest(window: [f32; 4]) -> f32 {
    larger(larger(window[0], window[1]), larger(window[2], window[3]))
}

/// The larger value, or the NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a >= b || a.is_nan() { a } else { b }
}

/// Which pixel of a window is its first largest one, where NaN is the largest of all.
#[inline(always)]
fn winner(window: [f32; 4]) -> [bool; 4] {
    let most = largest(window);
    let hit = |value: f32| (value == most) | value.is_nan();
    let [first, second, third] = [hit(window[0]), hit(window[1]), hit(window[2])];
    [first, !first & second, !first & !second & third, !first & !second & !third]
}
