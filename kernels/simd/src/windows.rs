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
        let whole = w / 2 / BLOCK * BLOCK;
        scatter_blocks::<BLOCK>([top, bottom], dy, [above, below]);
        let rest = 2 * whole..;
        let rows = [top, bottom].map(|row| &row[rest.clone()]);
        scatter_blocks::<1>(rows, &dy[whole..], [&mut above[rest.clone()], &mut below[rest]]);
    }
}

/// Windows that the compiler makes vectors of.
const BLOCK: usize = 8;

/// [`scatter`] of a row of windows, as far as it is whole blocks of `N`.
#[inline(always)]
fn scatter_blocks<const N: usize>(rows: [&[f32]; 2], dy: &[f32], to: [&mut [f32]; 2]) {
    let [top, bottom] = rows.map(|row| row.as_chunks::<2>().0.as_chunks::<N>().0);
    let [above, below] = to.map(|row| row.as_chunks_mut::<2>().0.as_chunks_mut::<N>().0);
    let targets = above.iter_mut().zip(below);
    let blocks = top.iter().zip(bottom).zip(dy.as_chunks::<N>().0);
    for (((top, bottom), dy), (above, below)) in blocks.zip(targets) {
        let mut gradients = [[[0.0; 2]; N]; 2];
        for i in 0..N {
            let ([a, b], [c, d]) = (top[i], bottom[i]);
            let [first, second, third, fourth] =
                winner([a, b, c, d]).map(|here| if here { dy[i] } else { 0.0 });
            gradients[0][i] = [first, second];
            gradients[1][i] = [third, fourth];
        }
        [*above, *below] = gradients;
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

/// Marks the first largest pixel of a window, where NaN is the largest of all.
#[inline(always)]
fn winner(window: [f32; 4]) -> [bool; 4] {
    let most = largest(window);
    let hit = |value: f32| (value == most) | value.is_nan();
    let [first, second, third] = [hit(window[0]), hit(window[1]), hit(window[2])];
    [first, !first & second, !first & !second & third, !first & !second & !third]
}
