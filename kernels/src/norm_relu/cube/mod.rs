//! The primitives on a device. What a ReLU and a pool take is found anew wherever it is needed, from
//! the map that was normalised.

mod pixels;
mod pixels_along;
mod windows;
mod windows_along;

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

/// A map that is normalised, and how it moves; all contiguous.
pub struct Along<R: CubeRuntime> {
    /// `[n, c, h, w]`.
    pub x: CubeTensor<R>,
    /// How it moves, of its shape and type.
    pub moved: CubeTensor<R>,
    /// Centre, scale and shift, `[c]` each.
    pub map: [CubeTensor<R>; 3],
    /// How `v` moves where `x` stands still, by channel: by what the deviation from the centre is
    /// multiplied, and a constant, `[2, c]`.
    pub bend: CubeTensor<R>,
}

impl<R: CubeRuntime> Along<R> {
    fn map(&self) -> [ArrayArg<R>; 3] {
        self.map.clone().map(CubeTensor::into_array_arg)
    }
}

/// A gradient of `z`, and how it changes, if it does; contiguous and of one type.
pub struct Change<R: CubeRuntime> {
    pub dz: CubeTensor<R>,
    pub change: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> Change<R> {
    /// The change, or for a kernel that does not read it anything.
    fn change_or_any(&self) -> ArrayArg<R> {
        self.change.as_ref().unwrap_or(&self.dz).clone().into_array_arg()
    }
}

/// How [`activate`]'s result moves.
pub fn activate_along<R: CubeRuntime>(
    of: &Along<R>,
    after: Rectified,
    dtype: DType,
) -> CubeTensor<R> {
    if after.pool { windows_along::activate(of, dtype) } else { pixels_along::activate(of, dtype) }
}

/// How the sums of [`correlate`] change, in parts; `drawn` is how the mean moves, `[c]`.
pub fn correlate_along<R: CubeRuntime>(
    of: &Along<R>,
    by: &Change<R>,
    drawn: CubeTensor<R>,
    after: Rectified,
) -> Parts<R> {
    match after.pool {
        true => windows_along::correlate(of, by, drawn),
        false => pixels_along::correlate(of, by, drawn),
    }
}

/// How the result of [`combine`] changes; `drift` is what the moments add, `[3, c]`: by what the
/// movement of the map is multiplied, by what its deviation from the centre, and a constant.
pub fn combine_along<R: CubeRuntime>(
    of: &Along<R>,
    by: &Change<R>,
    drift: Option<CubeTensor<R>>,
    after: Rectified,
) -> CubeTensor<R> {
    match after.pool {
        true => windows_along::combine(of, by, drift),
        false => pixels_along::combine(of, by, drift),
    }
}

/// A unit for each channel.
#[cube(launch_unchecked)]
fn drift_kernel(
    scale: &Array<f32>,
    inverse: &Array<f32>,
    sums: &Array<f32>,
    drift: &mut Array<f32>,
    channels: usize,
    share: f32,
) {
    let channel = ABSOLUTE_POS;
    if channel >= channels {
        terminate!();
    }
    let (scale, inverse) = (scale[channel], inverse[channel]);
    drift[channel] = -(scale * inverse * (inverse * sums[channels + channel]) * share);
    drift[channels + channel] = -(scale * (sums[channel] * share));
}

/// What the moments of a map of `count` pixels a channel add to its gradient, `[2, c]`: by what a
/// pixel's deviation from the centre is multiplied, and a constant. Given scale, inverse deviation and
/// the [sums](correlate) of the gradient that comes.
pub fn drift<R: CubeRuntime>(of: [CubeTensor<R>; 3], count: usize) -> CubeTensor<R> {
    let [scale, inverse, sums] = of.map(into_contiguous);
    let drift = empty_like(&sums);
    let [_, channels] = drift.meta.shape().dims();
    let (cubes, dim) = elementwise(&drift.client, channels);
    // SAFETY: there are an element of scale and of the inverse deviation, two sums and two results a
    // channel, and units stop there.
    unsafe {
        drift_kernel::launch_unchecked::<R>(
            &drift.client,
            cubes,
            dim,
            scale.into_array_arg(),
            inverse.into_array_arg(),
            sums.into_array_arg(),
            drift.clone().into_array_arg(),
            channels,
            1.0 / count as f32,
        );
    }
    drift
}

/// `dv * scale`, to which the [`drift`] is added where centre and scale are of the map's own moments.
pub fn combine<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    drift: Option<CubeTensor<R>>,
    after: Rectified,
) -> CubeTensor<R> {
    let ([dz, x], map) = ([dz, x].map(into_contiguous), map.map(into_contiguous));
    if after.pool {
        windows::combine(dz, x, map, drift)
    } else {
        pixels::combine(dz, x, map, drift)
    }
}
