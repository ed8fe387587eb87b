//! With a pool: a unit for each 2x2 window.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{Grad, Input, Parts, channel_of_cube};
use crate::cube::{
    arrays, cubes_of_channel, elementwise, empty, empty_like, launch, row_of_cubes, store_sums,
    unit_below,
};
use crate::max_pool::cube::{argmax, first_pixel};

/// True if a ReLU lets a value pass.
#[cube]
fn passes(value: f32) -> bool {
    value > 0.0f32 || value.is_nan()
}

/// A unit for each window.
#[cube(launch_unchecked)]
fn activate_kernel<F: Float, G: Float>(
    x: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    z: &mut Array<G>,
    x_tangents: &Sequence<Array<F>>,
    map_tangents: &Sequence<Array<f32>>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let window = unit_below(windows);
    let c = window / (w / 2) / (h / 2) % channels;
    let best = argmax(x, first_pixel(window, h, w), w, centre[c], scale[c], shift[c], true);
    let mut value = 0.0f32;
    if passes(best.value) {
        value = best.value;
        if comptime!(x_tangents.len() == 1) {
            let map_tangent = map_tangents.index(0usize);
            let far = f32::cast_from(x[best.at]) - centre[c];
            value = f32::cast_from(x_tangents.index(0usize)[best.at]) * scale[c]
                + far * map_tangent[c]
                + map_tangent[channels + c];
        }
    }
    z[window] = G::cast_from(value);
}

/// The sums of each cube's part of `dv`, and of `dv * (x - centre)`, or their tangents.
#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float>(
    dz: &Array<G>,
    x: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    parts: &mut Array<f32>,
    dz_tangents: &Sequence<Array<G>>,
    x_tangents: &Sequence<Array<F>>,
    centre_tangents: &Sequence<Array<f32>>,
    channels: usize,
    h: usize,
    w: usize,
    windows: usize,
    cubes: usize,
    #[comptime] units: u32,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let (channel, part) = channel_of_cube(channels, cubes);
    let (centre, scale, shift) = (centre[channel], scale[channel], shift[channel]);
    let mut centre_tangent = 0.0f32;
    if comptime!(x_tangents.len() == 1) {
        centre_tangent = centre_tangents.index(0usize)[channel];
    }
    let (rows, across) = (h / 2, w / 2);
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    // Windows of the channel, over all images.
    let mut window = part * comptime!(units as usize) + UNIT_POS as usize;
    while window < windows {
        let row = window / across;
        let plane = row / rows * channels + channel;
        let first = (plane * h + row % rows * 2) * w + window % across * 2;
        let best = argmax(x, first, w, centre, scale, shift, true);
        if passes(best.value) {
            let at = (plane * rows + row % rows) * across + window % across;
            let g = f32::cast_from(dz[at]);
            if comptime!(x_tangents.len() == 1) {
                let x_tangent = f32::cast_from(x_tangents.index(0usize)[best.at]);
                product += g * (x_tangent - centre_tangent);
                if comptime!(dz_tangents.len() == 1) {
                    let dz_tangent = f32::cast_from(dz_tangents.index(0usize)[at]);
                    sum += dz_tangent;
                    product += dz_tangent * (f32::cast_from(x[best.at]) - centre);
                }
            } else {
                sum += g;
                product += g * (f32::cast_from(x[best.at]) - centre);
            }
        }
        window += cubes * comptime!(units as usize);
    }
    store_sums(parts, sum, product, units);
}

/// A unit for each window, those cut off at an odd edge too: writes its pixels.
#[cube(launch_unchecked)]
fn combine_kernel<F: Float, G: Float>(
    dz: &Array<G>,
    x: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    dx: &mut Array<F>,
    dz_tangents: &Sequence<Array<G>>,
    x_tangents: &Sequence<Array<F>>,
    map_tangents: &Sequence<Array<f32>>,
    moment_grads: &Sequence<Array<f32>>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let window = unit_below(windows);
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
        let best = argmax(x, first, w, centre, scale[c], shift[c], true);
        if passes(best.value) {
            chosen = best.at;
            let at = (plane * (h / 2) + row) * (w / 2) + column;
            let mut factor = scale[c];
            if comptime!(map_tangents.len() == 1) {
                factor = map_tangents.index(0usize)[c];
            }
            gradient = f32::cast_from(dz[at]) * factor;
            if comptime!(dz_tangents.len() == 1) {
                gradient += f32::cast_from(dz_tangents.index(0usize)[at]) * scale[c];
            }
        }
    }
    #[unroll]
    for pixel in 0..4usize {
        let (down, right) = comptime!((pixel / 2, pixel % 2));
        if row * 2 + down < h && column * 2 + right < w {
            let at = first + down * w + right;
            let mut value = 0.0f32;
            if comptime!(moment_grads.len() == 1) {
                let moment_grad = moment_grads.index(0usize);
                let far = f32::cast_from(x[at]) - centre;
                if comptime!(x_tangents.len() == 1) {
                    let x_tangent = f32::cast_from(x_tangents.index(0usize)[at]);
                    value = x_tangent * moment_grad[c]
                        + far * moment_grad[channels + c]
                        + moment_grad[2 * channels + c];
                } else {
                    value = far * moment_grad[c] + moment_grad[channels + c];
                }
            }
            if at == chosen {
                value += gradient;
            }
            dx[at] = F::cast_from(value);
        }
    }
}

pub fn activate<R: CubeRuntime>(of: &Input<R>, dtype: DType) -> CubeTensor<R> {
    let (x, [centre, scale, shift]) = (&of.x, &of.map);
    let [n, channels, h, w] = x.meta.shape().dims();
    let z = empty(x, [n, channels, h / 2, w / 2], dtype);
    let windows = z.meta.num_elements();
    if windows == 0 {
        return z;
    }
    // SAFETY: maps have planes of `h` rows of `w` pixels, each of a channel that has an element in every
    // vector and two in the map's tangent; every window lies in one of them, and units stop at the last.
    unsafe {
        launch!(activate_kernel, elementwise(&z.client, windows);
            x, centre, scale, shift, z;
            arrays(of.x_tangent()), arrays(of.map_tangent()), windows, channels, h, w,
            [x.dtype, dtype].map(Into::into));
    }
    z
}

pub fn correlate<R: CubeRuntime>(
    of: &Input<R>,
    by: &Grad<R>,
    [x_tangent, centre_tangent]: [Option<&CubeTensor<R>>; 2],
) -> Parts<R> {
    let (x, [centre, scale, shift]) = (&of.x, &of.map);
    let [_, channels, h, w] = x.meta.shape().dims();
    let windows = by.dz.meta.num_elements() / channels;
    let (cubes, units) = cubes_of_channel(&x.client, channels, windows);
    let parts = empty(x, [channels * cubes * 2], DType::F32);
    // SAFETY: as in `activate`; the gradient and its tangent have an element a window, there are two parts
    // for each cube of each channel, and units stop at the last window of theirs.
    unsafe {
        launch!(sums_kernel, row_of_cubes(&x.client, cubes * channels, units);
            by.dz, x, centre, scale, shift, parts;
            arrays(&by.tangent), arrays(x_tangent), arrays(centre_tangent),
            channels, h, w, windows, cubes, units, [x.dtype, by.dz.dtype].map(Into::into));
    }
    Parts { sums: parts, channels, cubes }
}

pub fn combine<R: CubeRuntime>(
    of: &Input<R>,
    by: &Grad<R>,
    moment_grad: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let (x, [centre, scale, shift]) = (&of.x, &of.map);
    let [n, channels, h, w] = x.meta.shape().dims();
    let dx = empty_like(x);
    let windows = n * channels * h.div_ceil(2) * w.div_ceil(2);
    if windows == 0 {
        return dx;
    }
    // SAFETY: as in `correlate`; only whole windows read the gradient and take pixels of another row or
    // column, every pixel is written within its plane, and units stop at the last window.
    unsafe {
        launch!(combine_kernel, elementwise(&x.client, windows);
            by.dz, x, centre, scale, shift, dx;
            arrays(&by.tangent), arrays(of.x_tangent()), arrays(of.map_tangent()),
            arrays(&moment_grad), windows, channels, h, w, [x.dtype, by.dz.dtype].map(Into::into));
    }
    dx
}
