//! Sums by channel, in two stages: a part for each cube, then their sum.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Grad, Parts, Plan, channel_of_cube, place, rectified};
use crate::cube::{
    arrays, cube_sum, elementwise, empty, into_contiguous, lane_sum, launch, store_sums,
    unit_below, wide,
};

/// Count, mean and sum of squared deviations from it of a cube's part of a channel's elements, in every unit;
/// `vectors` is how many a channel has, `cubes` how many share them.
#[cube]
pub fn cube_moments<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    channel: usize,
    part: usize,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    #[comptime] units: u32,
) -> (f32, f32, f32) {
    let start = part * comptime!(units as usize) + UNIT_POS as usize;
    let step = cubes * comptime!(units as usize);
    let mut sum = 0.0f32;
    let mut count = 0.0f32;
    let mut at = start;
    while at < vectors {
        sum += lane_sum(wide(x[place(at, channel, channels, plane)]));
        count += lane_sum(Vector::<f32, N>::new(1.0f32));
        at += step;
    }
    let count = cube_sum(count, units);
    let mean = cube_sum(sum, units) / max(count, 1.0f32);
    let mut squares = 0.0f32;
    let mut at = start;
    while at < vectors {
        let far = wide(x[place(at, channel, channels, plane)]) - Vector::new(mean);
        squares += lane_sum(far * far);
        at += step;
    }
    (count, mean, cube_sum(squares, units))
}

/// The part of each cube, from [`cube_moments`].
#[cube(launch_unchecked)]
fn parts_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    parts: &mut Array<f32>,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let (channel, part) = channel_of_cube(channels, cubes);
    let (count, mean, squares) =
        cube_moments::<F, N>(x, channel, part, channels, plane, vectors, cubes, units);
    if UNIT_POS == 0 {
        let part = (channel * cubes + part) * 3;
        parts[part] = count;
        parts[part + 1] = mean;
        parts[part + 2] = squares;
    }
}

/// Mean and biased variance of a channel, of its [`moment_parts`], put together as Chan, Golub and
/// LeVeque (1979) do.
#[cube]
pub fn merged(parts: &Array<f32>, channel: usize, cubes: usize) -> (f32, f32) {
    let mut count = 0.0f32;
    let mut mean = 0.0f32;
    let mut squares = 0.0f32;
    for cube in 0..cubes {
        let part = (channel * cubes + cube) * 3;
        let more = parts[part];
        if more > 0.0f32 {
            let all = count + more;
            let difference = parts[part + 1] - mean;
            mean += difference * (more / all);
            squares += parts[part + 2] + difference * difference * (count * more / all);
            count = all;
        }
    }
    (mean, squares / count)
}

/// The two sums of a channel, of their parts.
#[cube]
pub fn added(parts: &Array<f32>, channel: usize, cubes: usize) -> (f32, f32) {
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    for cube in 0..cubes {
        let part = (channel * cubes + cube) * 2;
        sum += parts[part];
        product += parts[part + 1];
    }
    (sum, product)
}

/// The sums of each cube's elements of `dv` and of `dv * (x - centre)`, or their tangents where there
/// are tangents; `dv` is `dz`, or with `relu` only where the map of `x` is not zero.
#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<Vector<G, N>>,
    x: &Array<Vector<F, N>>,
    parts: &mut Array<f32>,
    map: &Sequence<Array<f32>>,
    dz_tangents: &Sequence<Array<Vector<G, N>>>,
    x_tangents: &Sequence<Array<Vector<F, N>>>,
    centre_tangents: &Sequence<Array<f32>>,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    #[comptime] relu: bool,
    #[comptime] units: u32,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let (channel, part) = channel_of_cube(channels, cubes);
    let centre = Vector::new(map.index(0usize)[channel]);
    let mut scale = Vector::new(1.0f32);
    let mut shift = Vector::new(0.0f32);
    if comptime!(relu) {
        scale = Vector::new(map.index(1usize)[channel]);
        shift = Vector::new(map.index(2usize)[channel]);
    }
    let mut centre_tangent = Vector::new(0.0f32);
    if comptime!(x_tangents.len() == 1) {
        centre_tangent = Vector::new(centre_tangents.index(0usize)[channel]);
    }
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    let mut at = part * comptime!(units as usize) + UNIT_POS as usize;
    while at < vectors {
        let place = place(at, channel, channels, plane);
        let far = wide(x[place]) - centre;
        let mut dv = wide(dz[place]);
        if comptime!(relu) {
            dv = rectified(far * scale + shift, dv);
        }
        if comptime!(x_tangents.len() == 1) {
            product += lane_sum(dv * (wide(x_tangents.index(0usize)[place]) - centre_tangent));
            if comptime!(dz_tangents.len() == 1) {
                let dz_tangent = wide(dz_tangents.index(0usize)[place]);
                let dz_tangent = rectified(far * scale + shift, dz_tangent);
                sum += lane_sum(dz_tangent);
                product += lane_sum(dz_tangent * far);
            }
        } else {
            sum += lane_sum(dv);
            product += lane_sum(dv * far);
        }
        at += cubes * comptime!(units as usize);
    }
    store_sums(parts, sum, product, units);
}

/// A unit for each channel: the two moments, or sums, of its parts.
#[cube(launch_unchecked)]
fn pairs_kernel(
    parts: &Array<f32>,
    pairs: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    #[comptime] moments: bool,
) {
    let channel = unit_below(channels);
    let (first, second) = if comptime!(moments) {
        merged(parts, channel, cubes)
    } else {
        added(parts, channel, cubes)
    };
    pairs[channel] = first;
    pairs[channels + channel] = second;
}

/// Count, mean and sum of squared deviations of every cube's elements: three parts for each of the
/// cubes of every channel.
pub fn moment_parts<R: CubeRuntime>(x: CubeTensor<R>) -> Parts<R> {
    let x = into_contiguous(x);
    let plan = Plan::new(&x);
    let Plan { channels, plane, vectors, width, cubes, units } = plan;
    let parts = empty(&x, [channels * cubes * 3], DType::F32);
    // SAFETY: `x` has `vectors` vectors a channel, in planes, and there are three parts for each cube
    // of each channel.
    unsafe {
        launch!(parts_kernel, plan.launch(&x.client), width;
            x, parts;
            channels, plane, vectors, cubes, units, x.dtype.into());
    }
    Parts { sums: parts, channels, cubes }
}

pub fn moments<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    pairs(moment_parts(x), true)
}

/// The sums over every channel of `dv` and of `dv * (x - centre)`, in parts, of a contiguous `x`; `map` is
/// the centre, and scale and shift too where a ReLU leaves of `dz` what is `dv`. With the tangents of `x`
/// and of the centre, the tangents of the sums.
pub fn correlate<R: CubeRuntime>(
    by: &Grad<R>,
    x: &CubeTensor<R>,
    map: &[CubeTensor<R>],
    [x_tangent, centre_tangent]: [Option<&CubeTensor<R>>; 2],
) -> Parts<R> {
    let plan = Plan::new(x);
    let Plan { channels, plane, vectors, width, cubes, units } = plan;
    let parts = empty(x, [channels * cubes * 2], DType::F32);
    // SAFETY: all maps have `vectors` vectors a channel, in planes; there are two parts for each
    // cube of each channel, an element a channel of each vector, and units stop there.
    unsafe {
        launch!(sums_kernel, plan.launch(&x.client), width;
            by.dz, x, parts;
            arrays(map), arrays(&by.tangent), arrays(x_tangent), arrays(centre_tangent),
            channels, plane, vectors, cubes, map.len() > 1, units,
            [x.dtype, by.dz.dtype].map(Into::into));
    }
    Parts { sums: parts, channels, cubes }
}

/// The sums, `[2, channels]`.
pub fn total<R: CubeRuntime>(of: Parts<R>) -> CubeTensor<R> {
    pairs(of, false)
}

fn pairs<R: CubeRuntime>(of: Parts<R>, moments: bool) -> CubeTensor<R> {
    let Parts { sums: parts, channels, cubes } = of;
    let pairs = empty(&parts, [2, channels], DType::F32);
    // SAFETY: there are two parts for each cube of each channel, three of moments, and two numbers a
    // channel, and units stop there.
    unsafe {
        launch!(pairs_kernel, elementwise(&parts.client, channels);
            parts, pairs; channels, cubes, moments);
    }
    pairs
}
