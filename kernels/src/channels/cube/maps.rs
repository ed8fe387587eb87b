//! Maps by channel, in one pass.

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Plan;
use crate::channels::CentredScaled;
use crate::cube::{elementwise, empty_like, wide};

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

pub fn combine<R: CubeRuntime>(
    a: CentredScaled<CubeTensor<R>>,
    b: CentredScaled<CubeTensor<R>>,
) -> CubeTensor<R> {
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
