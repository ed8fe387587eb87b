//! Tangents of the passes without a pool: a unit for each vector of pixels.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::pixels::rectified;
use super::{DualGrad, DualInput};
use crate::channels::cube::{Parts, Plan, place};
use crate::cube::{cube_sum, elementwise, empty, empty_like, lane_sum, wide};

#[cube(launch_unchecked)]
fn activate_kernel<F: Float, G: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    x_tangent: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    map_tangent: &Array<f32>,
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
    let tilted = far * Vector::new(map_tangent[c]) + Vector::new(map_tangent[channels + c]);
    let tangent = wide(x_tangent[at]) * Vector::new(scale[c]) + tilted;
    z[at] = Vector::cast_from(rectified(v, tangent));
}

#[cube(launch_unchecked)]
fn sums_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<Vector<G, N>>,
    dz_tangent: &Array<Vector<G, N>>,
    x: &Array<Vector<F, N>>,
    x_tangent: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    centre_tangent: &Array<f32>,
    parts: &mut Array<f32>,
    channels: usize,
    plane: usize,
    vectors: usize,
    cubes: usize,
    #[comptime] has_dz_tangent: bool,
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
    let centre_tangent = Vector::new(centre_tangent[channel]);
    let mut sum = 0.0f32;
    let mut product = 0.0f32;
    let mut at = part * comptime!(units as usize) + UNIT_POS as usize;
    while at < vectors {
        let place = place(at, channel, channels, plane);
        let far = wide(x[place]) - centre;
        let v = far * scale + shift;
        product +=
            lane_sum(rectified(v, wide(dz[place])) * (wide(x_tangent[place]) - centre_tangent));
        if comptime!(has_dz_tangent) {
            let dz_tangent = rectified(v, wide(dz_tangent[place]));
            sum += lane_sum(dz_tangent);
            product += lane_sum(dz_tangent * far);
        }
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
    dz_tangent: &Array<Vector<G, N>>,
    x: &Array<Vector<F, N>>,
    x_tangent: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    map_tangent: &Array<f32>,
    moment_grad: &Array<f32>,
    dx: &mut Array<Vector<F, N>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[comptime] has_dz_tangent: bool,
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
    let mut gradient = rectified(v, wide(dz[at])) * Vector::new(map_tangent[c]);
    if comptime!(has_dz_tangent) {
        gradient += rectified(v, wide(dz_tangent[at])) * Vector::new(scale[c]);
    }
    if comptime!(has_moment_grad) {
        gradient += wide(x_tangent[at]) * Vector::new(moment_grad[c]);
        gradient += far * Vector::new(moment_grad[channels + c])
            + Vector::new(moment_grad[2 * channels + c]);
    }
    dx[at] = Vector::cast_from(gradient);
}

pub fn activate<R: CubeRuntime>(of: &DualInput<R>, dtype: DType) -> CubeTensor<R> {
    let plan = Plan::new(&of.x);
    let z = empty(&of.x, of.x.meta.shape().clone(), dtype);
    let [centre, scale, shift] = of.map();
    if plan.all() == 0 {
        return z;
    }
    let (count, dim) = elementwise(&z.client, plan.all());
    // SAFETY: all maps have `all` vectors, in planes of `channels` channels, each of which has an
    // element in every vector of the map and two in `map_tangent`; units stop there.
    unsafe {
        activate_kernel::launch_unchecked::<R>(
            &z.client,
            count,
            dim,
            plan.width,
            of.x.clone().into_array_arg(),
            of.x_tangent.clone().into_array_arg(),
            centre,
            scale,
            shift,
            of.map_tangent.clone().into_array_arg(),
            z.clone().into_array_arg(),
            plan.all(),
            plan.channels,
            plan.plane,
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
    let plan = Plan::new(&of.x);
    let parts = empty(&of.x, [plan.channels * plan.cubes * 2], DType::F32);
    let [centre, scale, shift] = of.map();
    // SAFETY: as in `activate`, the gradient and its tangent, read where there is one, among the maps;
    // there are two parts for each cube of each channel, and units stop at the last vector of theirs.
    unsafe {
        sums_kernel::launch_unchecked::<R>(
            &parts.client,
            plan.count(&parts.client),
            plan.dim(),
            plan.width,
            by.dz.clone().into_array_arg(),
            by.tangent_or_placeholder(),
            of.x.clone().into_array_arg(),
            of.x_tangent.clone().into_array_arg(),
            centre,
            scale,
            shift,
            centre_tangent.into_array_arg(),
            parts.clone().into_array_arg(),
            plan.channels,
            plan.plane,
            plan.vectors,
            plan.cubes,
            by.dz_tangent.is_some(),
            plan.units,
            [of.x.dtype, by.dz.dtype].map(Into::into),
        );
    }
    Parts { sums: parts, channels: plan.channels, cubes: plan.cubes }
}

pub fn combine<R: CubeRuntime>(
    of: &DualInput<R>,
    by: &DualGrad<R>,
    moment_grad: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let plan = Plan::new(&of.x);
    let dx = empty_like(&of.x);
    let has_moment_grad = moment_grad.is_some();
    // Not read where the map has no gradient through its moments.
    let moment_grad = moment_grad.unwrap_or_else(|| of.map_tangent.clone());
    let [centre, scale, shift] = of.map();
    if plan.all() == 0 {
        return dx;
    }
    let (count, dim) = elementwise(&dx.client, plan.all());
    // SAFETY: as in `correlate`, for the gradient that is written too.
    unsafe {
        combine_kernel::launch_unchecked::<R>(
            &dx.client,
            count,
            dim,
            plan.width,
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
            plan.all(),
            plan.channels,
            plan.plane,
            by.dz_tangent.is_some(),
            has_moment_grad,
            [of.x.dtype, by.dz.dtype].map(Into::into),
        );
    }
    dx
}
