//! Tangents of the passes with a pool: a unit for each 2x2 window.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::windows::argmax;
use super::{DualGrad, DualInput};
use crate::channels::cube::Parts;
use crate::cube::{cube_sum, cubes_of_channel, elementwise, empty, empty_like, row_of_cubes};

#[cube(launch_unchecked)]
fn activate_kernel<F: Float, G: Float>(
    x: &Array<F>,
    x_tangent: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    map_tangent: &Array<f32>,
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
    let mut value = 0.0f32;
    if best.value > 0.0f32 || best.value.is_nan() {
        let far = f32::cast_from(x[best.at]) - centre[c];
        value = f32::cast_from(x_tangent[best.at]) * scale[c]
            + far * map_tangent[c]
            + map_tangent[channels + c];
    }
    z[window] = G::cast_from(value);
}

#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float>(
    dz: &Array<G>,
    dz_tangent: &Array<G>,
    x: &Array<F>,
    x_tangent: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    centre_tangent: &Array<f32>,
    parts: &mut Array<f32>,
    channels: usize,
    h: usize,
    w: usize,
    windows: usize,
    cubes: usize,
    #[comptime] has_dz_tangent: bool,
    #[comptime] units: u32,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let (channel, part) = (CUBE_POS / cubes, CUBE_POS % cubes);
    if channel >= channels {
        terminate!();
    }
    let (centre, scale, shift) = (centre[channel], scale[channel], shift[channel]);
    let centre_tangent = centre_tangent[channel];
    let (rows, across) = (h / 2, w / 2);
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    let mut window = part * comptime!(units as usize) + UNIT_POS as usize;
    while window < windows {
        let row = window / across;
        let plane = row / rows * channels + channel;
        let first = (plane * h + row % rows * 2) * w + window % across * 2;
        let best = argmax(x, first, w, centre, scale, shift);
        if best.value > 0.0f32 || best.value.is_nan() {
            let at = (plane * rows + row % rows) * across + window % across;
            product +=
                f32::cast_from(dz[at]) * (f32::cast_from(x_tangent[best.at]) - centre_tangent);
            if comptime!(has_dz_tangent) {
                let dz_tangent = f32::cast_from(dz_tangent[at]);
                sum += dz_tangent;
                product += dz_tangent * (f32::cast_from(x[best.at]) - centre);
            }
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
    dz_tangent: &Array<G>,
    x: &Array<F>,
    x_tangent: &Array<F>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    map_tangent: &Array<f32>,
    moment_grad: &Array<f32>,
    dx: &mut Array<F>,
    windows: usize,
    channels: usize,
    h: usize,
    w: usize,
    #[comptime] has_dz_tangent: bool,
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
            let at = (plane * (h / 2) + row) * (w / 2) + column;
            gradient = f32::cast_from(dz[at]) * map_tangent[c];
            if comptime!(has_dz_tangent) {
                gradient += f32::cast_from(dz_tangent[at]) * scale[c];
            }
        }
    }
    #[unroll]
    for pixel in 0..4usize {
        let (down, right) = comptime!((pixel / 2, pixel % 2));
        if row * 2 + down < h && column * 2 + right < w {
            let at = first + down * w + right;
            let mut value = 0.0f32;
            if comptime!(has_moment_grad) {
                let far = f32::cast_from(x[at]) - centre;
                let x_tangent = f32::cast_from(x_tangent[at]);
                value = x_tangent * moment_grad[c]
                    + far * moment_grad[channels + c]
                    + moment_grad[2 * channels + c];
            }
            if at == chosen {
                value += gradient;
            }
            dx[at] = F::cast_from(value);
        }
    }
}

pub fn activate<R: CubeRuntime>(of: &DualInput<R>, dtype: DType) -> CubeTensor<R> {
    let [n, channels, h, w] = of.x.meta.shape().dims();
    let z = empty(&of.x, [n, channels, h / 2, w / 2], dtype);
    let windows = z.meta.num_elements();
    let [centre, scale, shift] = of.map();
    if windows == 0 {
        return z;
    }
    let (count, dim) = elementwise(&z.client, windows);
    // SAFETY: both maps have planes of `h` rows of `w` pixels, each of a channel that has an element in
    // every vector and two in `map_tangent`; every window lies in one of them, and units stop at the last.
    unsafe {
        activate_kernel::launch_unchecked::<R>(
            &z.client,
            count,
            dim,
            of.x.clone().into_array_arg(),
            of.x_tangent.clone().into_array_arg(),
            centre,
            scale,
            shift,
            of.map_tangent.clone().into_array_arg(),
            z.clone().into_array_arg(),
            windows,
            channels,
            h,
            w,
            [of.x.dtype, dtype].map(Into::into),
        );
    }
    z
}

pub fn correlate<R: CubeRuntime>(
    of: &DualInput<R>,
    by: &DualGrad<R>,
    centre_tangent: CubeTensor<R>,
) -> Parts<R> {
    let [_, channels, h, w] = of.x.meta.shape().dims();
    let windows = by.dz.meta.num_elements() / channels;
    let [centre, scale, shift] = of.map();
    let (cubes, units) = cubes_of_channel(&of.x.client, channels, windows);
    let parts = empty(&of.x, [channels * cubes * 2], DType::F32);
    // SAFETY: as in `activate`; the gradient and its tangent, read where there is one, have an element a
    // window, there are two parts for each cube of each channel, and units stop at the last window.
    unsafe {
        sums_kernel::launch_unchecked::<R>(
            &parts.client,
            row_of_cubes(&parts.client, cubes * channels),
            CubeDim::new_1d(units),
            by.dz.clone().into_array_arg(),
            by.tangent_or_placeholder(),
            of.x.clone().into_array_arg(),
            of.x_tangent.clone().into_array_arg(),
            centre,
            scale,
            shift,
            centre_tangent.into_array_arg(),
            parts.clone().into_array_arg(),
            channels,
            h,
            w,
            windows,
            cubes,
            by.dz_tangent.is_some(),
            units,
            [of.x.dtype, by.dz.dtype].map(Into::into),
        );
    }
    Parts { sums: parts, channels, cubes }
}

pub fn combine<R: CubeRuntime>(
    of: &DualInput<R>,
    by: &DualGrad<R>,
    moment_grad: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let [n, channels, h, w] = of.x.meta.shape().dims();
    let dx = empty_like(&of.x);
    let windows = n * channels * h.div_ceil(2) * w.div_ceil(2);
    let has_moment_grad = moment_grad.is_some();
    // Not read where the map has no gradient through its moments.
    let moment_grad = moment_grad.unwrap_or_else(|| of.map_tangent.clone());
    let [centre, scale, shift] = of.map();
    if windows == 0 {
        return dx;
    }
    let (count, dim) = elementwise(&dx.client, windows);
    // SAFETY: as in `correlate`; only whole windows read the gradient and take pixels of another row or
    // column, every pixel is written within its plane, and units stop at the last window.
    unsafe {
        combine_kernel::launch_unchecked::<R>(
            &dx.client,
            count,
            dim,
            by.dz.clone().into_array_arg(),
            by.tangent_or_placeholder(),
            of.x.clone().into_array_arg(),
            of.x_tangent.clone().into_array_arg(),
            centre,
            scale,
            shift,
            of.map_tangent.clone().into_array_arg(),
            moment_grad.into_array_arg(),
            dx.clone().into_array_arg(),
            windows,
            channels,
            h,
            w,
            by.dz_tangent.is_some(),
            has_moment_grad,
            [of.x.dtype, by.dz.dtype].map(Into::into),
        );
    }
    dx
}
