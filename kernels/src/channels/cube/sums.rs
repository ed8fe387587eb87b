//! Sums by channel, in two stages: a part for each cube, then their sum.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Parts, Plan, place};
use crate::cube::{cube_sum, elementwise, empty, lane_sum, wide};

/// The mean of each cube's elements, and the sum of their squared deviations from it.
#[cube(launch_unchecked)]
fn parts_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    parts: &mut Array<f32>,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    width: f32,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let (channel, part) = (CUBE_POS / cubes, CUBE_POS % cubes);
    if channel >= channels {
        terminate!();
    }
    let start = part * comptime!(units as usize) + UNIT_POS as usize;
    let step = cubes * comptime!(units as usize);
    let mut sum = 0.0f32;
    let mut count = 0.0f32;
    let mut at = start;
    while at < vectors {
        sum += lane_sum(wide(x[place(at, channel, channels, plane)]));
        count += 1.0f32;
        at += step;
    }
    let count = cube_sum(count, units) * width;
    let mean = cube_sum(sum, units) / max(count, 1.0f32);
    let mut squares = 0.0f32;
    let mut at = start;
    while at < vectors {
        let far = wide(x[place(at, channel, channels, plane)]) - Vector::new(mean);
        squares += lane_sum(far * far);
        at += step;
    }
    let squares = cube_sum(squares, units);
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
            let apart = parts[part + 1] - mean;
            mean += apart * (more / all);
            squares += parts[part + 2] + apart * apart * (count * more / all);
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

/// A unit for each channel.
#[cube(launch_unchecked)]
fn moments_kernel(parts: &Array<f32>, moments: &mut Array<f32>, channels: usize, cubes: usize) {
    let channel = ABSOLUTE_POS;
    if channel >= channels {
        terminate!();
    }
    let (mean, variance) = merged(parts, channel, cubes);
    moments[channel] = mean;
    moments[channels + channel] = variance;
}

/// The sums of each cube's elements of `g`, and of `g * (x - centre)`.
#[cube(launch_unchecked)]
fn sums_kernel<F: Float, N: Size>(
    g: &Array<Vector<F, N>>,
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    parts: &mut Array<f32>,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let (channel, part) = (CUBE_POS / cubes, CUBE_POS % cubes);
    if channel >= channels {
        terminate!();
    }
    let centre = Vector::new(centre[channel]);
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    let mut at = part * comptime!(units as usize) + UNIT_POS as usize;
    while at < vectors {
        let place = place(at, channel, channels, plane);
        let g = wide(g[place]);
        sum += lane_sum(g);
        product += lane_sum(g * (wide(x[place]) - centre));
        at += cubes * comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    let product = cube_sum(product, units);
    if UNIT_POS == 0 {
        let part = (channel * cubes + part) * 2;
        parts[part] = sum;
        parts[part + 1] = product;
    }
}

/// A unit for each channel: adds up its parts.
#[cube(launch_unchecked)]
fn total_kernel(parts: &Array<f32>, sums: &mut Array<f32>, channels: usize, cubes: usize) {
    let channel = ABSOLUTE_POS;
    if channel >= channels {
        terminate!();
    }
    let (sum, product) = added(parts, channel, cubes);
    sums[channel] = sum;
    sums[channels + channel] = product;
}

/// Count, mean and sum of squared deviations of every cube's elements: three parts for each of the
/// cubes of every channel.
pub fn moment_parts<R: CubeRuntime>(x: CubeTensor<R>) -> Parts<R> {
    let x = into_contiguous(x);
    let plan = Plan::new(&x);
    let Plan { channels, plane, vectors, width, cubes, units } = plan;
    let parts = empty(&x, [channels * cubes * 3], DType::F32);
    let (client, dtype) = (x.client.clone(), x.dtype);
    // SAFETY: `x` has `vectors` vectors a channel, in planes, and there are three parts for each cube
    // of each channel.
    unsafe {
        parts_kernel::launch_unchecked::<R>(
            &client,
            plan.count(&client),
            plan.dim(),
            width,
            x.into_array_arg(),
            parts.clone().into_array_arg(),
            channels,
            plane,
            vectors,
            cubes,
            width as f32,
            units,
            dtype.into(),
        );
    }
    Parts { sums: parts, channels, cubes }
}

pub fn moments<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let Parts { sums: parts, channels, cubes } = moment_parts(x);
    let moments = empty(&parts, [2, channels], DType::F32);
    let (channel_cubes, channel_dim) = elementwise(&moments.client, channels);
    // SAFETY: there are three parts for each cube of each channel and two moments a channel, and units
    // stop there.
    unsafe {
        moments_kernel::launch_unchecked::<R>(
            &moments.client,
            channel_cubes,
            channel_dim,
            parts.into_array_arg(),
            moments.clone().into_array_arg(),
            channels,
            cubes,
        );
    }
    moments
}

/// The sums over every channel of `g` and of `g * (x - centre)`, in parts.
pub fn correlate<R: CubeRuntime>(
    g: CubeTensor<R>,
    x: CubeTensor<R>,
    centre: CubeTensor<R>,
) -> Parts<R> {
    let [g, x, centre] = [g, x, centre].map(into_contiguous);
    let plan = Plan::new(&x);
    let Plan { channels, plane, vectors, width, cubes, units } = plan;
    let parts = empty(&x, [channels * cubes * 2], DType::F32);
    let dtype = x.dtype;
    // SAFETY: both maps have `vectors` vectors a channel, in planes; there are two parts for each
    // cube of each channel, a centre a channel, and units stop there.
    unsafe {
        sums_kernel::launch_unchecked::<R>(
            &parts.client,
            plan.count(&parts.client),
            plan.dim(),
            width,
            g.into_array_arg(),
            x.into_array_arg(),
            centre.into_array_arg(),
            parts.clone().into_array_arg(),
            channels,
            plane,
            vectors,
            cubes,
            units,
            dtype.into(),
        );
    }
    Parts { sums: parts, channels, cubes }
}

/// The sums, `[2, channels]`.
pub fn total<R: CubeRuntime>(of: Parts<R>) -> CubeTensor<R> {
    let Parts { sums: parts, channels, cubes } = of;
    let sums = empty(&parts, [2, channels], DType::F32);
    let (count, dim) = elementwise(&sums.client, channels);
    // SAFETY: there are two parts for each cube of each channel and two sums a channel, and units
    // stop there.
    unsafe {
        total_kernel::launch_unchecked::<R>(
            &sums.client,
            count,
            dim,
            parts.into_array_arg(),
            sums.clone().into_array_arg(),
            channels,
            cubes,
        );
    }
    sums
}
