//! The primitives on a device, and their tangents where the input has tangents. What a ReLU and a pool take
//! is found anew wherever it is needed, from the map that was normalised.

mod windows;

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Rectified;
use crate::channels::cube::{self as channels, Grad, Input, Parts, Plan, added, rectified};
use crate::cube::{arrays, elementwise, empty_each, empty_like, launch, unit_below, wide};

/// `relu(v)` or `relu(max_pool(v))`, of the type `dtype`.
pub fn activate<R: CubeRuntime>(of: &Input<R>, after: Rectified, dtype: DType) -> CubeTensor<R> {
    match after.pool {
        true => windows::activate(of, dtype),
        false => channels::affine(of, true, dtype),
    }
}

/// The sums over every channel of `dv` and of `dv * (x - centre)`, in parts; `dv` is `dz` at the pixels
/// that were taken. Tangents are given with that of the centre, `[c]`.
pub fn correlate<R: CubeRuntime>(
    of: &Input<R>,
    by: &Grad<R>,
    centre_tangent: Option<&CubeTensor<R>>,
    after: Rectified,
) -> Parts<R> {
    let tangents = [of.x_tangent(), centre_tangent];
    match after.pool {
        true => windows::correlate(of, by, tangents),
        false => channels::correlate(by, &of.x, &of.map, tangents),
    }
}

/// `dv * scale`, to which the `moment_grad` is added where centre and scale are of the map's own moments: of
/// a tangent a factor of that of the map, and always a factor of the map's deviation from the centre and a
/// constant, `[3, c]` or `[2, c]`.
pub fn combine<R: CubeRuntime>(
    of: &Input<R>,
    by: &Grad<R>,
    moment_grad: Option<CubeTensor<R>>,
    after: Rectified,
) -> CubeTensor<R> {
    match after.pool {
        true => windows::combine(of, by, moment_grad),
        false => combine_pixels(of, by, moment_grad),
    }
}

/// Without a pool, a unit for each vector of pixels.
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

fn combine_pixels<R: CubeRuntime>(
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

/// The gradient of a map through its moments, and the gradients of bias, gamma and beta.
pub struct Gradients<R: CubeRuntime> {
    /// The sums over every channel of `dv` and of `dv * (x - centre)`, `[2, c]`.
    pub sums: CubeTensor<R>,
    /// A factor of a pixel's deviation from the centre, and a constant, `[2, c]`; of tangents `[3, c]`, first a
    /// factor of the map's tangent. None where the moments are given.
    pub moment_grad: Option<CubeTensor<R>>,
    /// The gradients of bias, gamma and beta.
    pub vectors: [CubeTensor<R>; 3],
}

/// A unit for each channel.
#[cube(launch_unchecked)]
fn gradients_kernel(
    parts: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    sums: &mut Array<f32>,
    moment_grad: &mut Array<f32>,
    d_bias: &mut Array<f32>,
    d_gamma: &mut Array<f32>,
    d_beta: &mut Array<f32>,
    biases: &Sequence<Array<f32>>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
) {
    let c = unit_below(channels);
    let (sum, product) = added(parts, c, cubes);
    let (scale, inverse) = (scale[c], inverse[c]);
    sums[c] = sum;
    sums[channels + c] = product;
    d_beta[c] = sum;
    let mut whole = product;
    if comptime!(batch) {
        moment_grad[c] = -(scale * inverse * (inverse * product) * share);
        moment_grad[channels + c] = -(scale * (sum * share));
        d_bias[c] = 0.0f32;
    } else {
        if comptime!(biases.len() == 1) {
            whole += biases.index(0usize)[c] * sum;
        }
        d_bias[c] = scale * sum;
    }
    d_gamma[c] = inverse * whole;
}

/// [`Gradients`] from the [sums](correlate) of a gradient, in parts; scale, inverse deviation and bias, if there is
/// one, are the block's, and `pixels` how many a channel has where the moments are of these.
pub fn gradients<R: CubeRuntime>(
    parts: Parts<R>,
    [scale, inverse]: [&CubeTensor<R>; 2],
    bias: Option<&CubeTensor<R>>,
    pixels: Option<usize>,
) -> Gradients<R> {
    let Parts { sums: parts, channels, cubes } = parts;
    let shapes =
        [vec![2, channels], vec![2, channels], vec![channels], vec![channels], vec![channels]];
    let [sums, moment_grad, d_bias, d_gamma, d_beta] = empty_each(&parts, shapes, DType::F32);
    let share = pixels.map_or(0.0, |pixels| 1.0 / pixels as f32);
    // SAFETY: all vectors have an element a channel, sums and what flows through the moments two, there are two
    // parts for each cube of each channel, and units stop at the last channel. What flows through the moments
    // is written where there is any.
    unsafe {
        launch!(gradients_kernel, elementwise(&sums.client, channels);
            parts, scale, inverse, sums, moment_grad, d_bias, d_gamma, d_beta;
            arrays(bias), channels, cubes, share, pixels.is_some());
    }
    let moment_grad = pixels.map(|_| moment_grad);
    Gradients { sums, moment_grad, vectors: [d_bias, d_gamma, d_beta] }
}
