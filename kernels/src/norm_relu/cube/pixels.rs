//! Without a pool: a unit for each vector of pixels.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{Grad, Input, Plan, rectified};
use crate::cube::{arrays, elementwise, empty_like, launch, unit_below, wide};

#[cube(launch_unchecked)]
fn combine_kernel<F: Float, G: Float, N: Size>(
    dz: &Array<Vector<G, N>>,
    x: &Array<Vector<F, N>>,
    centre: &Array<f32>,
    scale: &Array<f32>,
    shift: &Array<f32>,
    dx: &mut Array<Vector<F, N>>,
    dz_tangents: &Sequence<Array<Vector<G, N>>>,
    x_tangents: &Sequence<Array<Vector<F, N>>>,
    map_tangents: &Sequence<Array<f32>>,
    moment_grads: &Sequence<Array<f32>>,
    vectors: usize,
    channels: usize,
    plane: usize,
    #[define(F, G)] _dtypes: [StorageType; 2],
) {
    let at = unit_below(vectors);
    let c = at / plane % channels;
    let far = wide(x[at]) - Vector::new(centre[c]);
    let v = far * Vector::new(scale[c]) + Vector::new(shift[c]);
    let mut factor = scale[c];
    if comptime!(map_tangents.len() == 1) {
        factor = map_tangents.index(0usize)[c];
    }
    let mut gradient = rectified(v, wide(dz[at])) * Vector::new(factor);
    if comptime!(dz_tangents.len() == 1) {
        gradient += rectified(v, wide(dz_tangents.index(0usize)[at])) * Vector::new(scale[c]);
    }
    if comptime!(moment_grads.len() == 1) {
        let moment_grad = moment_grads.index(0usize);
        let mut place = c;
        if comptime!(x_tangents.len() == 1) {
            gradient += wide(x_tangents.index(0usize)[at]) * Vector::new(moment_grad[place]);
            place += channels;
        }
        gradient +=
            far * Vector::new(moment_grad[place]) + Vector::new(moment_grad[place + channels]);
    }
    dx[at] = Vector::cast_from(gradient);
}

pub fn combine<R: CubeRuntime>(
    of: &Input<R>,
    by: &Grad<R>,
    moment_grad: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let (x, [centre, scale, shift]) = (&of.x, &of.map);
    let plan = Plan::new(x);
    let dx = empty_like(x);
    if plan.all() == 0 {
        return dx;
    }
    // SAFETY: all maps have `all` vectors, in planes of `channels` channels, each of which has an element in
    // every vector of the map, two in its tangent and two or three in what the moments add; units stop there.
    unsafe {
        launch!(combine_kernel, elementwise(&x.client, plan.all()), plan.width;
            by.dz, x, centre, scale, shift, dx;
            arrays(&by.tangent), arrays(of.x_tangent()), arrays(of.map_tangent()),
            arrays(&moment_grad), plan.all(), plan.channels, plan.plane,
            [x.dtype, by.dz.dtype].map(Into::into));
    }
    dx
}
