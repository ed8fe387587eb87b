//! The primitives on a device. What a ReLU and a pool take is found anew wherever it is needed, from
//! the map that was normalised.

mod pixels;
mod windows;

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::Rectified;

/// What the gradient of a map is made of, by channel.
pub struct Onto<T> {
    /// By what the gradient of the pixels that were taken is multiplied, `[c]`.
    pub direct: T,
    /// By what a pixel's deviation from the centre is multiplied, and what is added, each `[c]`.
    pub drift: Option<[T; 2]>,
}

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

/// `dv * direct + (x - centre) * tilt + level`.
pub fn combine<R: CubeRuntime>(
    dz: CubeTensor<R>,
    x: CubeTensor<R>,
    map: [CubeTensor<R>; 3],
    Onto { direct, drift }: Onto<CubeTensor<R>>,
    after: Rectified,
) -> CubeTensor<R> {
    let ([dz, x], map) = ([dz, x].map(into_contiguous), map.map(into_contiguous));
    let direct = into_contiguous(direct);
    let drift = drift.map(|vectors| vectors.map(into_contiguous));
    let onto = Onto { direct, drift };
    if after.pool { windows::combine(dz, x, map, onto) } else { pixels::combine(dz, x, map, onto) }
}
