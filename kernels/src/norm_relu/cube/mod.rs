//! The primitives on a device. What a ReLU and a pool take is found anew wherever it is needed, from
//! the map that was normalised.

mod pixels;
mod pixels_jvp;
mod windows;
mod windows_jvp;

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Rectified;
use crate::channels::cube::Parts;
use crate::cube::{elementwise, empty_like};

/// `relu(v)` or `relu(max_pool(v))`, of the type `dtype`.
pub fn activate<R: CubeRuntime>(
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    after: Rectified,
    dtype: DType,
) -> CubeTensor<R> {
    let (x, map) = (into_contiguous(x), map.map(into_contiguous));
    if after.pool { windows::activate(x, map, dtype) } else { pixels::activate(x, map, dtype) }
}

/// The sums over every channel of `dv` and of `dv * (x - centre)`, in parts; `dv` is `dz` at the pixels
/// that were taken.
pub fn correlate<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    after: Rectified,
) -> Parts<R> {
    let ([dz, x], map) = ([dz, x].map(into_contiguous), map.map(into_contiguous));
    if after.pool { windows::correlate(dz, x, map) } else { pixels::correlate(dz, x, map) }
}

/// A map that is normalised and its tangent, with the map `v` that normalises it and its tangent; all
/// contiguous.
pub struct DualInput<R: CubeRuntime> {
    /// `[n, c, h, w]`.
    pub x: CubeTensor<R>,
    /// Of its shape and type.
    pub x_tangent: CubeTensor<R>,
    /// Centre, scale and shift, `[c]` each.
    pub map: [CubeTensor<R>; 3],
    /// The tangent of `v` for a constant `x`, by channel: a factor of the deviation from the centre, and
    /// a constant, `[2, c]`.
    pub map_tangent: CubeTensor<R>,
}

impl<R: CubeRuntime> DualInput<R> {
    fn map(&self) -> [ArrayArg<R>; 3] {
        self.map.clone().map(CubeTensor::into_array_arg)
    }
}

/// A gradient of `z` and its tangent, `None` if that is zero; contiguous and of one type.
pub struct DualGrad<R: CubeRuntime> {
    pub dz: CubeTensor<R>,
    pub dz_tangent: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> DualGrad<R> {
    /// The tangent; if it is zero, another tensor for the argument that the kernel does not read.
    fn tangent_or_placeholder(&self) -> ArrayArg<R> {
        self.dz_tangent.as_ref().unwrap_or(&self.dz).clone().into_array_arg()
    }
}

/// The tangent of the result of [`activate`].
pub fn activate_jvp<R: CubeRuntime>(
    of: &DualInput<R>,
    after: Rectified,
    dtype: DType,
) -> CubeTensor<R> {
    if after.pool { windows_jvp::activate(of, dtype) } else { pixels_jvp::activate(of, dtype) }
}

/// The tangents of the sums of [`correlate`], in parts; `centre_tangent` is `[c]`.
pub fn correlate_jvp<R: CubeRuntime>(
    of: &DualInput<R>,
    by: &DualGrad<R>,
    centre_tangent: CubeTensor<R>,
    after: Rectified,
) -> Parts<R> {
    match after.pool {
        true => windows_jvp::correlate(of, by, centre_tangent),
        false => pixels_jvp::correlate(of, by, centre_tangent),
    }
}

/// The tangent of the result of [`combine`]; `moment_grad` is what the moments add, `[3, c]`: a factor of
/// the tangent of the map, a factor of its deviation from the centre, and a constant.
pub fn combine_jvp<R: CubeRuntime>(
    of: &DualInput<R>,
    by: &DualGrad<R>,
    moment_grad: Option<CubeTensor<R>>,
    after: Rectified,
) -> CubeTensor<R> {
    match after.pool {
        true => windows_jvp::combine(of, by, moment_grad),
        false => pixels_jvp::combine(of, by, moment_grad),
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
    let channel = ABSOLUTE_POS;
    if channel >= channels {
        terminate!();
    }
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
    let (cubes, dim) = elementwise(&moment_grad.client, channels);
    // SAFETY: there are an element of scale and of the inverse deviation, two sums and two results a
    // channel, and units stop there.
    unsafe {
        moment_grad_kernel::launch_unchecked::<R>(
            &moment_grad.client,
            cubes,
            dim,
            scale.into_array_arg(),
            inverse.into_array_arg(),
            sums.into_array_arg(),
            moment_grad.clone().into_array_arg(),
            channels,
            1.0 / count as f32,
        );
    }
    moment_grad
}

/// `dv * scale`, to which the [`moment_grad`] is added where centre and scale are of the map's own moments.
pub fn combine<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    moment_grad: Option<CubeTensor<R>>,
    after: Rectified,
) -> CubeTensor<R> {
    let ([dz, x], map) = ([dz, x].map(into_contiguous), map.map(into_contiguous));
    if after.pool {
        windows::combine(dz, x, map, moment_grad)
    } else {
        pixels::combine(dz, x, map, moment_grad)
    }
}
