//! With a pool: a unit for each 2x2 window.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{Grad, Input, Parts, channel_of_cube};
use crate::cube::{
    Four, arrays, cubes_of_channel, elementwise, empty, empty_like, launch, row_of_cubes,
    store_sums, unit_below, vector_size, wide,
};
use crate::max_pool::cube::{beats, first_pixel};

/// True if a ReLU lets a value pass.
#[cube]
fn passes(value: f32) -> bool {
    value > 0.0f32 || value.is_nan()
}

/// The pixels of the window that begins at `first` in rows of `w`, which are read in pairs where rows have such.
#[cube]
fn pixels<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    first: usize,
    w: usize,
    #[comptime] paired: bool,
) -> Vector<f32, Four> {
    let mut four = Vector::<f32, Four>::new(0.0f32);
    #[unroll]
    for row in 0..2usize {
        let at = first + row * w;
        if comptime!(paired) {
            let pair = x[at / 2];
            four[comptime!(2 * row)] = f32::cast_from(pair[0usize]);
            four[comptime!(2 * row + 1)] = f32::cast_from(pair[1usize]);
        } else {
            four[comptime!(2 * row)] = f32::cast_from(x[at][0usize]);
            four[comptime!(2 * row + 1)] = f32::cast_from(x[at + 1][0usize]);
        }
    }
    four
}

/// The pixel that a window takes.
#[derive(CubeType, Clone, Copy)]
struct Argmax {
    /// Its number among the four.
    place: usize,
    value: f32,
}

/// The first largest of four values; NaN is the largest.
#[cube]
fn argmax(values: Vector<f32, Four>) -> Argmax {
    let mut place = 0usize;
    let mut value = values[0usize];
    #[unroll]
    for other in 1..4usize {
        if beats(values[other], value) {
            place = other.runtime();
            value = values[other];
        }
    }
    Argmax { place, value }
}

/// The value at a place that the device computes.
#[cube]
fn at_place(values: Vector<f32, Four>, place: usize) -> f32 {
    let mut value = values[0usize];
    #[unroll]
    for other in 1..4usize {
        if place == other {
            value = values[other];
        }
    }
    value
}

/// A unit for each window.
#[cube(launch_unchecked)]
fn activate_kernel<F: Float, G: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    z: &mut Array<G>,
    x_tangents: &Sequence<Array<Vector<F, N>>>,
    map_tangents: &Sequence<Array<f32>>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[comptime] paired: bool,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let window = unit_below(windows);
    let c = window / (w / 2) / (h / 2) % channels;
    let first = first_pixel(window, h, w);
    let far = pixels(x, first, w, paired) - Vector::new(centre[c]);
    let best = argmax(far * Vector::new(scale[c]) + Vector::new(shift[c]));
    let mut value = 0.0f32;
    if passes(best.value) {
        value = best.value;
        if comptime!(x_tangents.len() == 1) {
            let map_tangent = map_tangents.index(0usize);
            let x_tangent = pixels(x_tangents.index(0usize), first, w, paired);
            value = at_place(x_tangent, best.place) * scale[c]
                + at_place(far, best.place) * map_tangent[c]
                + map_tangent[channels + c];
        }
    }
    z[window] = G::cast_from(value);
}

/// The sums of each cube's part of `dv`, and of `dv * (x - centre)`, or their tangents.
#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<G>,
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    parts: &mut Array<f32>,
    dz_tangents: &Sequence<Array<G>>,
    x_tangents: &Sequence<Array<Vector<F, N>>>,
    centre_tangents: &Sequence<Array<f32>>,
    channels: usize,
    h: usize,
    w: usize,
    windows: usize,
    cubes: usize,
    #[comptime] paired: bool,
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
        let far = pixels(x, first, w, paired) - Vector::new(centre);
        let best = argmax(far * Vector::new(scale) + Vector::new(shift));
        if passes(best.value) {
            let at = (plane * rows + row % rows) * across + window % across;
            let g = f32::cast_from(dz[at]);
            if comptime!(x_tangents.len() == 1) {
                let x_tangent = pixels(x_tangents.index(0usize), first, w, paired);
                product += g * (at_place(x_tangent, best.place) - centre_tangent);
                if comptime!(dz_tangents.len() == 1) {
                    let dz_tangent = f32::cast_from(dz_tangents.index(0usize)[at]);
                    sum += dz_tangent;
                    product += dz_tangent * at_place(far, best.place);
                }
            } else {
                sum += g;
                product += g * at_place(far, best.place);
            }
        }
        window += cubes * comptime!(units as usize);
    }
    store_sums(parts, sum, product, units);
}

/// A unit for each window, those cut off at an odd edge too: writes its pixels.
#[cube(launch_unchecked)]
fn combine_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<G>,
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    dx: &mut Array<Vector<F, N>>,
    dz_tangents: &Sequence<Array<G>>,
    x_tangents: &Sequence<Array<Vector<F, N>>>,
    map_tangents: &Sequence<Array<f32>>,
    moment_grads: &Sequence<Array<f32>>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[comptime] paired: bool,
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
    let mut chosen = 4usize;
    let mut gradient = 0.0f32;
    if row < h / 2 && column < w / 2 {
        let far = pixels(x, first, w, paired) - Vector::new(centre);
        let best = argmax(far * Vector::new(scale[c]) + Vector::new(shift[c]));
        if passes(best.value) {
            chosen = best.place;
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
    let width = comptime!(if paired { 2usize } else { 1 });
    #[unroll]
    for vector in 0..comptime!(4 / width) {
        let pixel = comptime!(vector * width);
        let (down, right) = comptime!((pixel / 2, pixel % 2));
        if row * 2 + down < h && column * 2 + right < w {
            let at = (first + down * w + right) / width;
            let mut value = Vector::<f32, N>::new(0.0f32);
            if comptime!(moment_grads.len() == 1) {
                let moment_grad = moment_grads.index(0usize);
                let mut place = c;
                if comptime!(x_tangents.len() == 1) {
                    value += wide(x_tangents.index(0usize)[at]) * Vector::new(moment_grad[place]);
                    place += channels;
                }
                value += (wide(x[at]) - Vector::new(centre)) * Vector::new(moment_grad[place])
                    + Vector::new(moment_grad[place + channels]);
            }
            #[unroll]
            for element in 0..width {
                if chosen == comptime!(pixel + element) {
                    value[element] += gradient;
                }
            }
            dx[at] = Vector::cast_from(value);
        }
    }
}

/// Pixels that are read at once: two, where rows have pairs.
fn width<R: CubeRuntime>(x: &CubeTensor<R>) -> usize {
    let [.., w] = x.meta.shape().dims::<4>();
    vector_size(&x.client, w, x.elem_size()).min(2)
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
        launch!(activate_kernel, elementwise(&z.client, windows), width(x);
            x, centre, scale, shift, z;
            arrays(of.x_tangent()), arrays(of.map_tangent()), windows, channels, h, w, width(x) == 2,
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
        launch!(sums_kernel, row_of_cubes(&x.client, cubes * channels, units), width(x);
            by.dz, x, centre, scale, shift, parts;
            arrays(&by.tangent), arrays(x_tangent), arrays(centre_tangent),
            channels, h, w, windows, cubes, width(x) == 2, units, [x.dtype, by.dz.dtype].map(Into::into));
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
        launch!(combine_kernel, elementwise(&x.client, windows), width(x);
            by.dz, x, centre, scale, shift, dx;
            arrays(&by.tangent), arrays(of.x_tangent()), arrays(of.map_tangent()),
            arrays(&moment_grad), windows, channels, h, w, width(x) == 2, [x.dtype, by.dz.dtype].map(Into::into));
    }
    dx
}
