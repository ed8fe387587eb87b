//! Max-pooling on a device.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{elementwise, empty, empty_like, into_contiguous, launch, unit_below};

/// A pixel that a window takes, and what is made of it.
#[derive(CubeType, Clone, Copy)]
pub struct Argmax {
    pub at: usize,
    pub value: f32,
}

/// A pixel, or where `mapped` `(x - centre) * scale + shift` of it.
#[cube]
fn pixel<F: Float>(x: F, centre: f32, scale: f32, shift: f32, #[comptime] mapped: bool) -> f32 {
    let x = f32::cast_from(x);
    if comptime!(mapped) { (x - centre) * scale + shift } else { x }
}

/// The first largest pixel of a window in rows of `w`, of what the map makes of them where `mapped`; NaN
/// is the largest.
#[cube]
pub fn argmax<F: Float>(
    x: &Array<F>,
    first: usize,
    w: usize,
    centre: f32,
    scale: f32,
    shift: f32,
    #[comptime] mapped: bool,
) -> Argmax {
    let mut at = first;
    let mut value = pixel::<F>(x[first], centre, scale, shift, mapped);
    #[unroll]
    for place in 1..4usize {
        let place = first + comptime!(place / 2) * w + comptime!(place % 2);
        let other = pixel::<F>(x[place], centre, scale, shift, mapped);
        if other > value || (other.is_nan() && !value.is_nan()) {
            at = place;
            value = other;
        }
    }
    Argmax { at, value }
}

/// The place of the first largest pixel of a window.
#[cube]
fn largest<F: Float>(x: &Array<F>, first: usize, w: usize) -> usize {
    argmax(x, first, w, 0.0f32, 1.0f32, 0.0f32, false).at
}

/// The first pixel of a window, counted over all planes.
#[cube]
pub fn first_pixel(window: usize, h: usize, w: usize) -> usize {
    let across = w / 2;
    let row = window / across;
    let plane = row / (h / 2);
    (plane * h + row % (h / 2) * 2) * w + window % across * 2
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
    #[define(F)] _dtype: StorageType,
) {
    let window = unit_below(windows);
    taken[window] = values[largest(x, first_pixel(window, h, w), w)];
}

/// A unit for each pixel: the element of `dy` of its window, if it is the first largest there.
#[cube(launch_unchecked)]
fn scattered_kernel<F: Float>(
    x: &Array<F>,
    dy: &Array<F>,
    dx: &mut Array<F>,
    pixels: usize,
    h: usize,
    w: usize,
    #[define(F)] _dtype: StorageType,
) {
    let pixel = unit_below(pixels);
    let line = pixel / w;
    let (row, column) = (line % h / 2, pixel % w / 2);
    let mut value = F::new(0.0);
    if row < h / 2 && column < w / 2 {
        let window = (line / h * (h / 2) + row) * (w / 2) + column;
        if largest(x, first_pixel(window, h, w), w) == pixel {
            value = dy[window];
        }
    }
    dx[pixel] = value;
}

pub fn gather<R: CubeRuntime>(x: CubeTensor<R>, u: CubeTensor<R>) -> CubeTensor<R> {
    let [x, u] = [x, u].map(into_contiguous);
    let [n, c, h, w] = x.meta.shape().dims();
    let taken = empty(&x, [n, c, h / 2, w / 2], x.dtype);
    let windows = taken.meta.num_elements();
    if windows == 0 {
        return taken;
    }
    // SAFETY: `x` and `u` have planes of `h` rows of `w` pixels, every window lies in one of them,
    // and units stop at the last window.
    unsafe {
        launch!(taken_kernel, elementwise(&x.client, windows);
            x, u, taken; windows, h, w, x.dtype.into());
    }
    taken
}

pub fn scatter<R: CubeRuntime>(x: CubeTensor<R>, dy: CubeTensor<R>) -> CubeTensor<R> {
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
            x, dy, dx; pixels, h, w, x.dtype.into());
    }
    dx
}
