//! The primitives on a device: sums in two stages, maps in one pass.
//!
//! Maps are f32, f16 or bf16; vectors, sums and all arithmetic are f32.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::Tied;
use crate::cube::{
    cube_sum, cubes_of_channel, elementwise, empty, empty_like, lane_sum, row_of_cubes,
    vector_size, wide,
};

/// How a map `[n, c, h, w]` is read by channel.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub channels: usize,
    /// Vectors of a plane.
    pub plane: usize,
    /// Vectors of a channel.
    pub vectors: usize,
    pub width: usize,
    /// Cubes of a channel, in a reduction.
    pub cubes: usize,
    pub units: u32,
}

impl Plan {
    pub fn new<R: CubeRuntime>(x: &CubeTensor<R>) -> Self {
        let [n, channels, h, w] = x.meta.shape().dims();
        let width = vector_size(&x.client, h * w, x.elem_size());
        let (plane, vectors) = (h * w / width, n * h * w / width);
        let (cubes, units) = cubes_of_channel(&x.client, channels, vectors);
        Self { channels, plane, vectors, width, cubes, units }
    }

    pub fn count<R: CubeRuntime>(&self, client: &ComputeClient<R>) -> CubeCount {
        row_of_cubes(client, self.cubes * self.channels)
    }

    pub fn dim(&self) -> CubeDim {
        CubeDim::new_1d(self.units)
    }

    /// Vectors of the map.
    pub fn all(&self) -> usize {
        self.channels * self.vectors
    }
}

/// Sums by channel that are yet to be added up: two for each of the cubes of every channel.
pub struct Parts<R: CubeRuntime> {
    pub sums: CubeTensor<R>,
    pub channels: usize,
    pub cubes: usize,
}

/// Where a vector of a channel lies in the map.
#[cube]
pub fn place(vector: usize, channel: usize, channels: usize, plane: usize) -> usize {
    (vector / plane * channels + channel) * plane + vector % plane
}

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

#[cube(launch_unchecked)]
fn affine_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    y: &mut Array<Vector<F, N>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[define(F)] _dtype: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let channel = at / plane % channels;
    let far = wide(x[at]) - Vector::new(centre[channel]);
    y[at] = Vector::cast_from(far * Vector::new(scale[channel]) + Vector::new(shift[channel]));
}

#[cube(launch_unchecked)]
fn combine_kernel<F: Float, N: Size>(
    a: &Array<Vector<F, N>>,
    a_centre: &Array<f32>,
    a_scale: &Array<f32>,
    b: &Array<Vector<F, N>>,
    b_centre: &Array<f32>,
    b_scale: &Array<f32>,
    y: &mut Array<Vector<F, N>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[define(F)] _dtype: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let channel = at / plane % channels;
    let of_a = (wide(a[at]) - Vector::new(a_centre[channel])) * Vector::new(a_scale[channel]);
    let of_b = (wide(b[at]) - Vector::new(b_centre[channel])) * Vector::new(b_scale[channel]);
    y[at] = Vector::cast_from(of_a + of_b);
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

pub fn affine<R: CubeRuntime>(x: CubeTensor<R>, map: [CubeTensor<R>; 3]) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let plan = Plan::new(&x);
    let y = empty_like(&x);
    let [centre, scale, shift] = map.map(into_contiguous).map(CubeTensor::into_array_arg);
    if plan.all() == 0 {
        return y;
    }
    let (count, dim) = elementwise(&y.client, plan.all());
    // SAFETY: both maps have `all` vectors, in planes of `channels` channels, each of which has an
    // element in every vector; units stop there.
    unsafe {
        affine_kernel::launch_unchecked::<R>(
            &y.client,
            count,
            dim,
            plan.width,
            x.into_array_arg(),
            centre,
            scale,
            shift,
            y.clone().into_array_arg(),
            plan.all(),
            plan.channels,
            plan.plane,
            y.dtype.into(),
        );
    }
    y
}

pub fn combine<R: CubeRuntime>(a: Tied<CubeTensor<R>>, b: Tied<CubeTensor<R>>) -> CubeTensor<R> {
    let of_a = [a.x, a.centre, a.scale].map(into_contiguous);
    let of_b = [b.x, b.centre, b.scale].map(into_contiguous);
    let plan = Plan::new(&of_a[0]);
    let y = empty_like(&of_a[0]);
    let [a, a_centre, a_scale] = of_a.map(CubeTensor::into_array_arg);
    let [b, b_centre, b_scale] = of_b.map(CubeTensor::into_array_arg);
    if plan.all() == 0 {
        return y;
    }
    let (count, dim) = elementwise(&y.client, plan.all());
    // SAFETY: as in `affine`, for both maps.
    unsafe {
        combine_kernel::launch_unchecked::<R>(
            &y.client,
            count,
            dim,
            plan.width,
            a,
            a_centre,
            a_scale,
            b,
            b_centre,
            b_scale,
            y.clone().into_array_arg(),
            plan.all(),
            plan.channels,
            plan.plane,
            y.dtype.into(),
        );
    }
    y
}
