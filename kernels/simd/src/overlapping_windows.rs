//! The 3x3 windows of a plane `[h, w]`, two pixels apart, the first around the corner pixel.
//!
//! A pixel beyond the edge is the nearest one on it. Each such pixel is in the window already, so the largest
//! value stays what it is, and so does the first pixel that has it.

use std::array::from_fn;

use super::simd::Simd;

/// Windows that the compiler makes vectors of.
const BLOCK: usize = 8;

/// A value for each window of a block, by pixel of the window.
type Block<T> = [[T; BLOCK]; 9];

/// Row or column of a pixel of a window.
#[inline(always)]
fn pixel(window: usize, place: usize, size: usize) -> usize {
    (2 * window + place).saturating_sub(1).min(size - 1)
}

/// Values of `x` in the windows of `row` from the window `first` on, of which the last ones may lie beyond the row.
#[inline(always)]
fn block(x: &[f32], w: usize, row: usize, first: usize) -> Block<f32> {
    let lines: [_; 3] = from_fn(|place| &x[pixel(row, place, x.len() / w) * w..][..w]);
    if first > 0 && 2 * (first + BLOCK) <= w {
        let lines = lines.map(|line| &line[2 * first - 1..][..2 * BLOCK + 1]);
        return from_fn(|place| from_fn(|i| lines[place / 3][2 * i + place % 3]));
    }
    from_fn(|place| from_fn(|i| lines[place / 3][pixel(first + i, place % 3, w)]))
}

/// Calls `each` with row, first window and number of windows of every block.
#[inline(always)]
fn for_each_block(pixels: usize, w: usize, mut each: impl FnMut(usize, usize, usize)) {
    let (rows, columns) = ((pixels / w).div_ceil(2), w.div_ceil(2));
    for row in 0..rows {
        for first in (0..columns).step_by(BLOCK) {
            each(row, first, BLOCK.min(columns - first));
        }
    }
}

/// The largest values, or the NaN.
#[inline(always)]
fn largest(windows: &Block<f32>) -> [f32; BLOCK] {
    let [first, others @ ..] = windows;
    others.iter().fold(*first, |most, values| {
        from_fn(|i| if most[i] >= values[i] || most[i].is_nan() { most[i] } else { values[i] })
    })
}

/// Marks the first largest pixel of each window, where NaN is the largest of all.
#[inline(always)]
fn winners(windows: &Block<f32>) -> Block<bool> {
    let (most, mut open) = (largest(windows), [true; BLOCK]);
    windows.map(|values| {
        from_fn(|i| {
            let hit = open[i] & ((values[i] == most[i]) | values[i].is_nan());
            open[i] &= !hit;
            hit
        })
    })
}

/// Writes the largest value of every window, or NaN where there is one.
#[inline(always)]
pub fn overlapping_pool<S: Simd>(_: S, x: &[f32], w: usize, out: &mut [f32]) {
    let columns = w.div_ceil(2);
    for_each_block(x.len(), w, |row, first, count| {
        let most = largest(&block(x, w, row, first));
        out[row * columns + first..][..count].copy_from_slice(&most[..count]);
    });
}

/// Adds `dy` to the first largest pixel of every window in `dx`, which is zero before.
#[inline(always)]
pub fn overlapping_scatter<S: Simd>(_: S, x: &[f32], w: usize, dy: &[f32], dx: &mut [f32]) {
    let (h, columns) = (x.len() / w, w.div_ceil(2));
    for_each_block(x.len(), w, |row, first, count| {
        let (hits, dy) = (winners(&block(x, w, row, first)), &dy[row * columns + first..][..count]);
        for (place, hits) in hits.iter().enumerate() {
            let line = &mut dx[pixel(row, place / 3, h) * w..][..w];
            for (i, (&hit, &dy)) in hits.iter().zip(dy).enumerate() {
                line[pixel(first + i, place % 3, w)] += if hit { dy } else { 0.0 };
            }
        }
    });
}

/// Writes the value of `u` at the first largest pixel of every window of `x`.
#[inline(always)]
pub fn overlapping_gather<S: Simd>(_: S, x: &[f32], w: usize, u: &[f32], out: &mut [f32]) {
    let columns = w.div_ceil(2);
    for_each_block(x.len(), w, |row, first, count| {
        let (hits, u) = (winners(&block(x, w, row, first)), block(u, w, row, first));
        let mut taken = [0.0; BLOCK];
        for (hits, u) in hits.iter().zip(&u) {
            taken = from_fn(|i| if hits[i] { u[i] } else { taken[i] });
        }
        out[row * columns + first..][..count].copy_from_slice(&taken[..count]);
    });
}

#[cfg(test)]
mod tests {
    use super::super::instruction_set::bodies;
    use crate::integers;

    /// Pixels of every window in order, those beyond the edge left out.
    fn windows([h, w]: [usize; 2]) -> Vec<Vec<usize>> {
        let around = |centre: usize, size| centre.saturating_sub(1)..(centre + 2).min(size);
        let columns = || (0..w).step_by(2);
        let window = |row, column| {
            around(row, h).flat_map(|row| around(column, w).map(move |at| row * w + at)).collect()
        };
        (0..h).step_by(2).flat_map(|row| columns().map(move |column| window(row, column))).collect()
    }

    fn first_largest(x: &[f32], window: &[usize]) -> usize {
        let larger = |a: f32, b: f32| a > b || a.is_nan() && !b.is_nan();
        window
            .iter()
            .copied()
            .reduce(|best, at| if larger(x[at], x[best]) { at } else { best })
            .unwrap()
    }

    #[test]
    fn windows_take_their_first_largest_pixel() {
        for [h, w] in [[1, 1], [1, 2], [2, 1], [3, 3], [5, 16], [4, 17], [7, 33], [2, 40], [6, 47]]
        {
            let windows = windows([h, w]);
            let ties: Vec<_> =
                integers(h * w, 1).into_iter().map(|value| (value / 4.0).round()).collect();
            let infinite = vec![f32::NEG_INFINITY; h * w];
            let mut nans = integers(h * w, 2);
            nans.iter_mut().step_by(7).for_each(|value| *value = f32::NAN);
            for x in [integers(h * w, 3), ties, infinite, nans] {
                let places: Vec<_> =
                    windows.iter().map(|window| first_largest(&x, window)).collect();
                let (dy, u) = (integers(places.len(), 4), integers(h * w, 5));
                let mut gradient = vec![0.0; h * w];
                places.iter().zip(&dy).for_each(|(&at, dy)| gradient[at] += dy);
                for body in bodies() {
                    let mut largest = vec![0.0; places.len()];
                    body.overlapping_pool(&x, w, &mut largest);
                    let expected = places.iter().map(|&at| x[at].to_bits());
                    assert!(
                        largest.iter().map(|value| value.to_bits()).eq(expected),
                        "{h}x{w} {}",
                        body.name()
                    );
                    let mut taken = vec![0.0; places.len()];
                    body.overlapping_gather(&x, w, &u, &mut taken);
                    assert!(
                        taken.iter().eq(places.iter().map(|&at| &u[at])),
                        "{h}x{w} {}",
                        body.name()
                    );
                    let mut dx = vec![0.0; h * w];
                    body.overlapping_scatter(&x, w, &dy, &mut dx);
                    assert_eq!(dx, gradient, "{h}x{w} {}", body.name());
                }
            }
        }
    }
}
