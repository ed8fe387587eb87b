//! With a pool: a unit for each 2x2 window.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::Parts;
use crate::cube::{cube_sum, cubes_of_channel, elementwise, empty, empty_like, row_of_cubes};

/// A pixel that a window takes, and what the map makes of it.
#[derive(CubeType, Clone, Copy)]
pub struct Argmax {
    pub at: usize,
    pub value: f32,
}

/// The first largest pixel of a window in rows of `w`; NaN is the largest.
#[cube]
pub fn argmax<F: Float>(
    x: &Array<F>,
    first: usize,
    w: usize,
    centre: f32,
    scale: f32,
    shift: f32,
) -> Argmax {
    let mut at = first;
    let mut value = (f32::cast_from(x[first]) - centre) * scale + shift;
    #[unroll]
    for pixel in 1..4usize {
        let place = first + comptime!(pixel / 2) * w + comptime!(pixel % 2);
        let found = (f32::cast_from(x[place]) - centre) * scale + shift;
        if found > value || (found.is_nan() && !value.is_nan()) {
            at = place;
            value = found;
        }
    }
    Argmax { at, value }
}

/// A unit for each window.
#[cube(launch_unchecked)]
fn activate_kernel<F: Float, G: Float>(
    x: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    z: &mut Array<G>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let window = ABSOLUTE_POS;
    if window >= windows {
        terminate!();
    }
    let (rows, across) = (h / 2, w / 2);
    let row = window / across;
    let plane = row / rows;
    let c = plane % channels;
    let first = (plane * h + row % rows * 2) * w + window % across * 2;
    let best = argmax(x, first, w, centre[c], scale[c], shift[c]);
    let mut value = best.value;
    if value <= 0.0f32 {
        value = 0.0f32;
    }
    z[window] = G::cast_from(value);
}

/// The sums of each cube's part of `dv`, and of `dv * (x - centre)`.
#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float>(
    dz: &Array<G>,
    x: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    parts: &mut Array<f32>,
    channels: usize,
    h: usize,
    w: usize,
    windows: usize,
    cubes: usize,
    #[comptime] units: u32,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let (channel, part) = (CUBE_POS / cubes, CUBE_POS % cubes);
    if channel >= channels {
        terminate!();
    }
    let (centre, scale, shift) = (centre[channel], scale[channel], shift[channel]);
    let (rows, across) = (h / 2, w / 2);
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    // Windows of the channel, over all images.
    let mut window = part * comptime!(units as usize) + UNIT_POS as usize;
    while window < windows {
        let row = window / across;
        let plane = row / rows * channels + channel;
        let first = (plane * h + row % rows * 2) * w + window % across * 2;
        let best = argmax(x, first, w, centre, scale, shift);
        if best.value > 0.0f32 || best.value.is_nan() {
            let g = f32::cast_from(dz[(plane * rows + row % rows) * across + window % across]);
            sum += g;
            product += g * (f32::cast_from(x[best.at]) - centre);
        }
        window += cubes * comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    let product = cube_sum(product, units);
    if UNIT_POS == 0 {
        let part = (channel * cubes + part) * 2;
        parts[part] = sum;
        parts[part + 1] = product;
    }
}

/// A unit for each window, those cut off at an odd edge too: writes its pixels.
#[cube(launch_unchecked)]
fn combine_kernel<F: Float, G: Float>(
    dz: &Array<G>,
    x: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    moment_grad: &Array<f32>,
    dx: &mut Array<F>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[comptime] has_moment_grad: bool,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let window = ABSOLUTE_POS;
    if window >= windows {
        terminate!();
    }
    let across = w.div_ceil(2);
    let lines = h.div_ceil(2);
    let line = window / across;
    let (row, column) = (line % lines, window % across);
    let plane = line / lines;
    let c = plane % channels;
    let centre = centre[c];
    let first = (plane * h + row * 2) * w + column * 2;
    // No pixel, unless a whole window takes one.
    let mut chosen = first + h * w;
    let mut gradient = 0.0f32;
    if row < h / 2 && column < w / 2 {
        let best = argmax(x, first, w, centre, scale[c], shift[c]);
        if best.value > 0.0f32 || best.value.is_nan() {
            chosen = best.at;
            let dz = dz[(plane * (h / 2) + row) * (w / 2) + column];
            gradient = f32::cast_from(dz) * scale[c];
        }
    }
    #[unroll]
    for pixel in 0..4usize {
        let (down, right) = comptime!((pixel / 2, pixel % 2));
        if row * 2 + down < h && column * 2 + right < w {
            let at = first + down * w + right;
            let mut value = 0.0f32;
            if comptime!(has_moment_grad) {
                value =
                    (f32::cast_from(x[at]) - centre) * moment_grad[c] + moment_grad[channels + c];
            }
            if at == chosen {
                value += gradient;
            }
            dx[at] = F::cast_from(value);
        }
    }
}

pub fn activate<R: CubeRuntime>(
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    dtype: DType,
) -> CubeTensor<R> {
    let [n, channels, h, w] = x.meta.shape().dims();
    let z = empty(&x, [n, channels, h / 2, w / 2], dtype);
    let dtypes = [x.dtype, dtype].map(Into::into);
    let windows = z.meta.num_elements();
    let [centre, scale, shift] = map.map(CubeTensor::into_array_arg);
    if windows == 0 {
        return z;
    }
    let (count, dim) = elementwise(&z.client, windows);
    // SAFETY: `x` has planes of `h` rows of `w` pixels, each of a channel that has an element in every
    // vector; every window lies in one of them, and units stop at the last window.
    unsafe {
        activate_kernel::launch_unchecked::<R>(
            &z.client,
            count,
            dim,
            x.into_array_arg(),
            centre,
            scale,
            shift,
            z.clone().into_array_arg(),
            windows,
            channels,
            h,
            w,
            dtypes,
        );
    }
    z
}

pub fn correlate<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
) -> Parts<R> {
    let [_, channels, h, w] = x.meta.shape().dims();
    let windows = dz.meta.num_elements() / channels;
    let [centre, scale, shift] = map.map(CubeTensor::into_array_arg);
    let (cubes, units) = cubes_of_channel(&x.client, channels, windows);
    let parts = empty(&x, [channels * cubes * 2], DType::F32);
    let dtypes = [x.dtype, dz.dtype].map(Into::into);
    // SAFETY: as in `activate`; `dz` has an element a window, there are two parts for each cube of
    // each channel, and units stop at the last window of theirs.
    unsafe {
        sums_kernel::launch_unchecked::<R>(
            &parts.client,
            row_of_cubes(&parts.client, cubes * channels),
            CubeDim::new_1d(units),
            dz.into_array_arg(),
            x.into_array_arg(),
            centre,
            scale,
            shift,
            parts.clone().into_array_arg(),
            channels,
            h,
            w,
            windows,
            cubes,
            units,
            dtypes,
        );
    }
    Parts { sums: parts, channels, cubes }
}

pub fn combine<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    moment_grad: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let [n, channels, h, w] = x.meta.shape().dims();
    let dx = empty_like(&x);
    let dtypes = [x.dtype, dz.dtype].map(Into::into);
    let windows = n * channels * h.div_ceil(2) * w.div_ceil(2);
    let has_moment_grad = moment_grad.is_some();
    // Not read where the map has no gradient through its moments.
    let moment_grad = moment_grad.unwrap_or_else(|| map[1].clone());
    let [centre, scale, shift] = map.map(CubeTensor::into_array_arg);
    if windows == 0 {
        return dx;
    }
    let (count, dim) = elementwise(&dx.client, windows);
    // SAFETY: as in `activate`; `dz` has an element for every whole window, only those read it and
    // take pixels of another row or column, every pixel is written within its plane, and units stop
    // at the last window.
    unsafe {
        combine_kernel::launch_unchecked::<R>(
            &dx.client,
            count,
            dim,
            dz.into_array_arg(),
            x.into_array_arg(),
            centre,
            scale,
            shift,
            moment_grad.into_array_arg(),
            dx.clone().into_array_arg(),
            windows,
            channels,
            h,
            w,
            has_moment_grad,
            dtypes,
        );
    }
    dx
}
