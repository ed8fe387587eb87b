//! The primitives on a device. What a ReLU and a pool take is found anew wherever it is needed, from
//! the map that was normalised.

mod pixels;
mod windows;

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Rectified;
use crate::cube::{elementwise, empty_like};

/// `relu(v)` or `relu(max_pool(v))`.
pub fn activate<R: CubeRuntime>(
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    after: Rectified,
) -> CubeTensor<R> {
    let (x, map) = (into_contiguous(x), map.map(into_contiguous));
    if after.pool { windows::activate(x, map) } else { pixels::activate(x, map) }
}

/// The sums over every channel of `dv` and of `dv * (x - centre)`, `[2, c]`; `dv` is `dz` at the pixels
/// that were taken.
pub fn correlate<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    after: Rectified,
) -> CubeTensor<R> {
    let ([dz, x], map) = ([dz, x].map(into_contiguous), map.map(into_contiguous));
    if after.pool { windows::correlate(dz, x, map) } else { pixels::correlate(dz, x, map) }
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
