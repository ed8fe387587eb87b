//! Without a pool: a unit for each vector of pixels.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{Parts, Plan, place};
use crate::cube::{cube_sum, elementwise, empty, empty_like, lane_sum, wide};

/// `value` where `v` is more than zero or no number, zero elsewhere.
#[cube]
pub fn rectified<N: Size>(v: Vector<f32, N>, value: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::new(0.0f32);
    select_many(v.less_equal(zero), zero, value)
}

#[cube(launch_unchecked)]
fn activate_kernel<F: Float, G: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    z: &mut Array<Vector<G, N>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let c = at / plane % channels;
    let far = wide(x[at]) - Vector::new(centre[c]);
    let v = far * Vector::new(scale[c]) + Vector::new(shift[c]);
    z[at] = Vector::cast_from(rectified(v, v));
}

/// The sums of each cube's part of `dv`, and of `dv * (x - centre)`.
#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<Vector<G, N>>,
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    parts: &mut Array<f32>,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    #[comptime] units: u32,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let (channel, part) = (CUBE_POS / cubes, CUBE_POS % cubes);
    if channel >= channels {
        terminate!();
    }
    let centre = Vector::new(centre[channel]);
    let scale = Vector::new(scale[channel]);
    let shift = Vector::new(shift[channel]);
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    let mut at = part * comptime!(units as usize) + UNIT_POS as usize;
    while at < vectors {
        let place = place(at, channel, channels, plane);
        let far = wide(x[place]) - centre;
        let dv = rectified(far * scale + shift, wide(dz[place]));
        sum += lane_sum(dv);
        product += lane_sum(dv * far);
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

#[cube(launch_unchecked)]
fn combine_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<Vector<G, N>>,
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    moment_grad: &Array<f32>,
    dx: &mut Array<Vector<F, N>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[comptime] has_moment_grad: bool,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let c = at / plane % channels;
    let far = wide(x[at]) - Vector::new(centre[c]);
    let v = far * Vector::new(scale[c]) + Vector::new(shift[c]);
    let mut gradient = rectified(v, wide(dz[at])) * Vector::new(scale[c]);
    if comptime!(has_moment_grad) {
        gradient += far * Vector::new(moment_grad[c]) + Vector::new(moment_grad[channels + c]);
    }
    dx[at] = Vector::cast_from(gradient);
}

pub fn activate<R: CubeRuntime>(
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    dtype: DType,
) -> CubeTensor<R> {
    let plan = Plan::new(&x);
    let z = empty(&x, x.meta.shape().clone(), dtype);
    let dtypes = [x.dtype, dtype].map(Into::into);
    let [centre, scale, shift] = map.map(CubeTensor::into_array_arg);
    if plan.all() == 0 {
        return z;
    }
    let (count, dim) = elementwise(&z.client, plan.all());
    // SAFETY: both maps have `all` vectors, in planes of `channels` channels, each of which has an
    // element in every vector of the map; units stop there.
    unsafe {
        activate_kernel::launch_unchecked::<R>(
            &z.client,
            count,
            dim,
            plan.width,
            x.into_array_arg(),
            centre,
            scale,
            shift,
            z.clone().into_array_arg(),
            plan.all(),
            plan.channels,
            plan.plane,
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
    let plan = Plan::new(&x);
    let parts = empty(&x, [plan.channels * plan.cubes * 2], DType::F32);
    let dtypes = [x.dtype, dz.dtype].map(Into::into);
    let [centre, scale, shift] = map.map(CubeTensor::into_array_arg);
    // SAFETY: as in `activate`; there are two parts for each cube of each channel, and units stop at
    // the last vector of theirs.
    unsafe {
        sums_kernel::launch_unchecked::<R>(
            &parts.client,
            plan.count(&parts.client),
            plan.dim(),
            plan.width,
            dz.into_array_arg(),
            x.into_array_arg(),
            centre,
            scale,
            shift,
            parts.clone().into_array_arg(),
            plan.channels,
            plan.plane,
            plan.vectors,
            plan.cubes,
            plan.units,
            dtypes,
        );
    }
    Parts { sums: parts, channels: plan.channels, cubes: plan.cubes }
}

pub fn combine<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    moment_grad: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let plan = Plan::new(&x);
    let dx = empty_like(&x);
    let dtypes = [x.dtype, dz.dtype].map(Into::into);
    let has_moment_grad = moment_grad.is_some();
    // Not read where the map has no gradient through its moments.
    let moment_grad = moment_grad.unwrap_or_else(|| map[1].clone());
    let [centre, scale, shift] = map.map(CubeTensor::into_array_arg);
    if plan.all() == 0 {
        return dx;
    }
    let (count, dim) = elementwise(&dx.client, plan.all());
    // SAFETY: as in `activate`, for three maps.
    unsafe {
        combine_kernel::launch_unchecked::<R>(
            &dx.client,
            count,
            dim,
            plan.width,
            dz.into_array_arg(),
            x.into_array_arg(),
            centre,
            scale,
            shift,
            moment_grad.into_array_arg(),
            dx.clone().into_array_arg(),
            plan.all(),
            plan.channels,
            plan.plane,
            has_moment_grad,
            dtypes,
        );
    }
    dx
}
