//! Means of planes on a device, and what is spread over them, in one launch each.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{elementwise, empty, into_contiguous, launch, unit_below};

/// Pixels of a plane that a unit adds up, at most: one of more is better shared.
const MOST_PIXELS: usize = 256;

/// True if [`mean`] takes planes of this size.
pub fn takes([h, w]: [usize; 2]) -> bool {
    h * w <= MOST_PIXELS
}

/// Where a plane of a map `[n, lanes * c, h, w]` has its mean in `[lanes, n, c]`.
#[cube]
fn place_of_mean(plane: usize, images: usize, lanes: usize, channels: usize) -> usize {
    let (image, channel) = (plane / (lanes * channels), plane % channels);
    let lane = plane / channels % lanes;
    (lane * images + image) * channels + channel
}

/// A unit for each plane.
#[cube(launch_unchecked)]
fn mean_kernel<F: Float>(
    x: &Array<F>,
    means: &mut Array<F>,
    planes: usize,
    pixels: usize,
    images: usize,
    lanes: usize,
    channels: usize,
    #[define(F)] _dtype: StorageType,
) {
    let plane = unit_below(planes);
    let mut sum = 0.0f32;
    for pixel in 0..pixels {
        sum += f32::cast_from(x[plane * pixels + pixel]);
    }
    means[place_of_mean(plane, images, lanes, channels)] = F::cast_from(sum / pixels as f32);
}

/// A unit for each pixel.
#[cube(launch_unchecked)]
fn spread_kernel<F: Float>(
    u: &Array<F>,
    x: &mut Array<F>,
    all: usize,
    pixels: usize,
    images: usize,
    lanes: usize,
    channels: usize,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(all);
    let value = f32::cast_from(u[place_of_mean(at / pixels, images, lanes, channels)]);
    x[at] = F::cast_from(value / pixels as f32);
}

/// `[n, lanes * c, h, w]` to `[lanes, n, c]`.
pub fn mean<R: CubeRuntime>(x: CubeTensor<R>, lanes: usize) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let [n, channels, h, w] = x.meta.shape().dims();
    let means = empty(&x, [lanes, n, channels / lanes], x.dtype);
    let planes = n * channels;
    if planes == 0 {
        return means;
    }
    // SAFETY: `x` has `planes` planes of `h * w` pixels, there is a mean of each, and units stop at the last plane.
    unsafe {
        launch!(mean_kernel, elementwise(&x.client, planes);
            x, means; planes, h * w, n, lanes, channels / lanes, x.dtype.into());
    }
    means
}

/// `[lanes, n, c]` to `[n, lanes * c, h, w]`, divided by the pixels of a plane.
pub fn spread<R: CubeRuntime>(u: CubeTensor<R>, [h, w]: [usize; 2]) -> CubeTensor<R> {
    let u = into_contiguous(u);
    let [lanes, n, c] = u.meta.shape().dims();
    let x = empty(&u, [n, lanes * c, h, w], u.dtype);
    let all = x.meta.num_elements();
    if all == 0 {
        return x;
    }
    // SAFETY: as in `mean`; units stop at the last pixel.
    unsafe {
        launch!(spread_kernel, elementwise(&u.client, all);
            u, x; all, h * w, n, lanes, c, u.dtype.into());
    }
    x
}
