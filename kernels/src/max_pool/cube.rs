//! Max-pooling on a device.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Windows;
use crate::cube::{elementwise, empty, empty_like, into_contiguous, launch, unit_below};

/// True if a pixel is taken in place of one before it; NaN is the largest.
#[cube]
pub fn beats(other: f32, value: f32) -> bool {
    other > value || (other.is_nan() && !value.is_nan())
}

/// The place of the first largest pixel of the 2x2 window that begins at `first`.
#[cube]
fn adjacent_largest<F: Float>(x: &Array<F>, first: usize, w: usize) -> usize {
    let mut at = first;
    let mut value = f32::cast_from(x[first]);
    #[unroll]
    for place in 1..4usize {
        let other_at = first + comptime!(place / 2) * w + comptime!(place % 2);
        let other = f32::cast_from(x[other_at]);
        if beats(other, value) {
            at = other_at;
            value = other;
        }
    }
    at
}

/// The first pixel of a window, counted over all planes.
#[cube]
pub fn first_pixel(window: usize, h: usize, w: usize) -> usize {
    let across = w / 2;
    let row = window / across;
    let plane = row / (h / 2);
    (plane * h + row % (h / 2) * 2) * w + window % across * 2
}

/// The place of the first largest pixel of the 3x3 window around a pixel, in the plane that begins at `plane`. A pixel
/// beyond the edge is the nearest one on it, which changes neither the value nor the first that has it.
#[cube]
fn overlapping_largest<F: Float>(
    x: &Array<F>,
    plane: usize,
    row: usize,
    column: usize,
    h: usize,
    w: usize,
) -> usize {
    let mut at = plane + nearest(row, h) * w + nearest(column, w);
    let mut value = f32::cast_from(x[at]);
    #[unroll]
    for place in 1..9usize {
        let line = nearest(row + comptime!(place / 3), h);
        let other_at = plane + line * w + nearest(column + comptime!(place % 3), w);
        let other = f32::cast_from(x[other_at]);
        if beats(other, value) {
            at = other_at;
            value = other;
        }
    }
    at
}

/// The row or column of the number before this one, or the nearest on an edge.
#[cube]
fn nearest(number: usize, size: usize) -> usize {
    min(max(number, 1usize) - 1, size - 1)
}

/// The place of the first largest pixel of the window of this number over all planes.
#[cube]
fn largest<F: Float>(
    x: &Array<F>,
    window: usize,
    h: usize,
    w: usize,
    #[comptime] over: Windows,
) -> usize {
    match comptime!(over) {
        Windows::Adjacent => adjacent_largest(x, first_pixel(window, h, w), w),
        Windows::Overlapping => {
            let (rows, columns) = (h.div_ceil(2), w.div_ceil(2));
            let line = window / columns;
            let plane = line / rows * h * w;
            overlapping_largest(x, plane, line % rows * 2, window % columns * 2, h, w)
        }
    }
}

/// A unit for each window: the element of `values` at its first largest pixel.
#[cube(launch_unchecked)]
fn taken_kernel<F: Float>(
    x: &Array<F>,
    values: &Array<F>,
    taken: &mut Array<F>,
    windows: usize,
    h: usize,
    w: usize,
    #[comptime] over: Windows,
    #[define(F)] _dtype: StorageType,
) {
    let window = unit_below(windows);
    taken[window] = values[largest(x, window, h, w, over)];
}

/// A unit for each pixel: the sum of `dy` over the windows whose first largest pixel it is. Of overlapping windows, one of
/// an odd row is in those above and below, one of an odd column in those beside it.
#[cube(launch_unchecked)]
fn scattered_kernel<F: Float>(
    x: &Array<F>,
    dy: &Array<F>,
    dx: &mut Array<F>,
    pixels: usize,
    h: usize,
    w: usize,
    #[comptime] over: Windows,
    #[define(F)] _dtype: StorageType,
) {
    let pixel = unit_below(pixels);
    let line = pixel / w;
    let (plane, row, column) = (line / h, line % h, pixel % w);
    let mut sum = 0.0f32;
    match comptime!(over) {
        Windows::Adjacent => {
            let (rows, columns) = (h / 2, w / 2);
            if row / 2 < rows && column / 2 < columns {
                let window = (plane * rows + row / 2) * columns + column / 2;
                if largest(x, window, h, w, over) == pixel {
                    sum = f32::cast_from(dy[window]);
                }
            }
        }
        Windows::Overlapping => {
            let (rows, columns) = (h.div_ceil(2), w.div_ceil(2));
            #[unroll]
            for place in 0..4usize {
                let (down, right) = comptime!((place / 2, place % 2));
                let (window_row, window_column) = (row / 2 + down, column / 2 + right);
                // An even row or column lies in the windows of its half alone.
                let has_pixel = (comptime!(down == 0) || row % 2 == 1)
                    && (comptime!(right == 0) || column % 2 == 1);
                if has_pixel && window_row < rows && window_column < columns {
                    let window = (plane * rows + window_row) * columns + window_column;
                    if largest(x, window, h, w, over) == pixel {
                        sum += f32::cast_from(dy[window]);
                    }
                }
            }
        }
    }
    dx[pixel] = F::cast_from(sum);
}

pub fn gather<R: CubeRuntime>(over: Windows, x: CubeTensor<R>, u: CubeTensor<R>) -> CubeTensor<R> {
    let [x, u] = [x, u].map(into_contiguous);
    let [n, c, h, w] = x.meta.shape().dims();
    let [rows, columns] = over.count([h, w]);
    let taken = empty(&x, [n, c, rows, columns], x.dtype);
    let windows = taken.meta.num_elements();
    if windows == 0 {
        return taken;
    }
    // SAFETY: `x` and `u` have planes of `h` rows of `w` pixels, every window lies in one of them,
    // and units stop at the last window.
    unsafe {
        launch!(taken_kernel, elementwise(&x.client, windows);
            x, u, taken; windows, h, w, over, x.dtype.into());
    }
    taken
}

pub fn scatter<R: CubeRuntime>(
    over: Windows,
    x: CubeTensor<R>,
    dy: CubeTensor<R>,
) -> CubeTensor<R> {
    let [x, dy] = [x, dy].map(into_contiguous);
    let [_, _, h, w] = x.meta.shape().dims();
    let dx = empty_like(&x);
    let pixels = dx.meta.num_elements();
    if pixels == 0 {
        return dx;
    }
    // SAFETY: as in `gather`; `dy` has an element a window, and units stop at the last pixel.
    unsafe {
        launch!(scattered_kernel, elementwise(&x.client, pixels);
            x, dy, dx; pixels, h, w, over, x.dtype.into());
    }
    dx
}
