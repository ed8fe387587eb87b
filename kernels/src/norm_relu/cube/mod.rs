//! The primitives on a device, and their tangents where the input has tangents. What a ReLU and a pool take
//! is found anew wherever it is needed, from the map that was normalised.

mod pixels;
mod windows;

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Rectified;
use crate::channels::cube::{self as channels, Grad, Input, Parts};
use crate::cube::{elementwise, empty_like, launch, unit_below};

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
        false => pixels::combine(of, by, moment_grad),
    }
}

/// A unit for each channel.
#[cube(launch_unchecked)]
fn moment_grad_kernel(
    scale: &Array<f32>,
    inverse: &Array<f32>,
    sums: &Array<f32>,
    moment_grad: &mut Array<f32>,
    channels: usize,
    share: f32,
) {
    let channel = unit_below(channels);
    let (scale, inverse) = (scale[channel], inverse[channel]);
    moment_grad[channel] = -(scale * inverse * (inverse * sums[channels + channel]) * share);
    moment_grad[channels + channel] = -(scale * (sums[channel] * share));
}

/// What flows through the moments to the gradient of a map of `count` pixels a channel, `[2, c]`: a factor
/// of a pixel's deviation from the centre, and a constant. Given scale, inverse deviation and the
/// [sums](correlate) of the gradient of `v`.
pub fn moment_grad<R: CubeRuntime>(of: [CubeTensor<R>; 3], count: usize) -> CubeTensor<R> {
    let [scale, inverse, sums] = of.map(into_contiguous);
    let moment_grad = empty_like(&sums);
    let [_, channels] = moment_grad.meta.shape().dims();
    // SAFETY: there are an element of scale and of the inverse deviation, two sums and two results a
    // channel, and units stop there.
    unsafe {
        launch!(moment_grad_kernel, elementwise(&sums.client, channels);
            scale, inverse, sums, moment_grad;
            channels, 1.0 / count as f32);
    }
    moment_grad
}
