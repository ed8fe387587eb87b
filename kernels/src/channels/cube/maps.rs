//! Maps by channel, in one pass.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Input, Plan};
use crate::cube::{
    arrays, elementwise, empty, empty_like, into_contiguous, launch, unit_below, wide,
};

/// `value` where `v` is more than zero or no number, zero elsewhere.
#[cube]
pub fn rectified<N: Size>(v: Vector<f32, N>, value: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::new(0.0f32);
    select_many(v.less_equal(zero), zero, value)
}

/// `v = (x - centre) * scale + shift`, or its tangent where there are tangents; zero where `relu` makes
/// `v` so.
#[cube(launch_unchecked)]
fn affine_kernel<F: Float, G: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    y: &mut Array<Vector<G, N>>,
    x_tangents: &Sequence<Array<Vector<F, N>>>,
    map_tangents: &Sequence<Array<f32>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[comptime] relu: bool,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let at = unit_below(vectors);
    let c = at / plane % channels;
    let far = wide(x[at]) - Vector::new(centre[c]);
    let v = far * Vector::new(scale[c]) + Vector::new(shift[c]);
    let mut value = v;
    if comptime!(x_tangents.len() == 1) {
        let map_tangent = map_tangents.index(0usize);
        let affine = far * Vector::new(map_tangent[c]) + Vector::new(map_tangent[channels + c]);
        value = wide(x_tangents.index(0usize)[at]) * Vector::new(scale[c]) + affine;
    }
    if comptime!(relu) {
        value = rectified(v, value);
    }
    y[at] = Vector::cast_from(value);
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
    let at = unit_below(vectors);
    let channel = at / plane % channels;
    let of_a = (wide(a[at]) - Vector::new(a_centre[channel])) * Vector::new(a_scale[channel]);
    let of_b = (wide(b[at]) - Vector::new(b_centre[channel])) * Vector::new(b_scale[channel]);
    y[at] = Vector::cast_from(of_a + of_b);
}

/// The map, or its tangent where the input has tangents, of the type `dtype`; zero where `relu` makes
/// the map so.
pub fn affine<R: CubeRuntime>(of: &Input<R>, relu: bool, dtype: DType) -> CubeTensor<R> {
    let (x, [centre, scale, shift]) = (&of.x, &of.map);
    let plan = Plan::new(x);
    let y = empty(x, x.meta.shape().clone(), dtype);
    if plan.all() == 0 {
        return y;
    }
    // SAFETY: all maps have `all` vectors, in planes of `channels` channels, each of which has an
    // element in every vector of the map and two in its tangent; units stop there.
    unsafe {
        launch!(affine_kernel, elementwise(&y.client, plan.all()), plan.width;
            x, centre, scale, shift, y;
            arrays(of.x_tangent()), arrays(of.map_tangent()), plan.all(), plan.channels,
            plan.plane, relu, [x.dtype, dtype].map(Into::into));
    }
    y
}

pub fn combine<R: CubeRuntime>(a: [CubeTensor<R>; 3], b: [CubeTensor<R>; 3]) -> CubeTensor<R> {
    let [[a, a_centre, a_scale], [b, b_centre, b_scale]] = [a, b].map(|of| of.map(into_contiguous));
    let plan = Plan::new(&a);
    let y = empty_like(&a);
    if plan.all() == 0 {
        return y;
    }
    // SAFETY: as in `affine`, for both maps.
    unsafe {
        launch!(combine_kernel, elementwise(&y.client, plan.all()), plan.width;
            a, a_centre, a_scale, b, b_centre, b_scale, y;
            plan.all(), plan.channels, plan.plane, y.dtype.into());
    }
    y
}
