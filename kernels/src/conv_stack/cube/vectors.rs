//! What a block has by channel: what it normalises with, and the gradients of its vectors. A launch each,
//! of a unit for every channel of every lane; a cube, where that finds the moments of a small map too.
//!
//! `v = (y - centre) * scale + shift`, with `scale = gamma * inverse`, and `inverse` one over the
//! deviation. Under the batch's own moments a bias moves the centre and `v` not at all; given ones
//! take it as a part of the shift.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{
    Parts, Plan, added, channel_of_cube, cube_moments, merged, moment_parts,
};
use crate::cube::{elementwise, empty_each, launch, row_of_cubes, unit_below};

/// A block's parameters by channel, `[c]` each.
#[derive(Clone)]
pub struct Vectors<R: CubeRuntime> {
    /// Not read unless there is one.
    pub bias: CubeTensor<R>,
    pub gamma: CubeTensor<R>,
    pub beta: CubeTensor<R>,
    /// Whether there is a bias.
    pub biased: bool,
}

/// What a block normalises with, `[c]` each.
#[derive(Clone)]
pub struct Norm<T> {
    pub centre: T,
    pub scale: T,
    pub shift: T,
    pub inverse: T,
}

impl<R: CubeRuntime> Norm<CubeTensor<R>> {
    /// Centre, scale and shift.
    pub fn map(&self) -> [CubeTensor<R>; 3] {
        [&self.centre, &self.scale, &self.shift].map(Clone::clone)
    }
}

/// What flows through the moments to the gradient of a map, and the gradients of the block's vectors.
pub struct Gradients<R: CubeRuntime> {
    /// The sums over every channel of `dv` and of `dv * (y - centre)`, `[2, c]`.
    pub sums: CubeTensor<R>,
    /// `[2, c]`; none where the moments are given.
    pub moment_grad: Option<CubeTensor<R>>,
    /// Of bias, gamma and beta.
    pub vectors: [CubeTensor<R>; 3],
}

/// What a channel is normalised with, by its own moments.
#[cube]
fn write_batch(
    c: usize,
    middle: f32,
    spread: f32,
    gamma: &Array<f32>,
    beta: &Array<f32>,
    bias: &Array<f32>,
    centre: &mut Array<f32>,
    scale: &mut Array<f32>,
    shift: &mut Array<f32>,
    inverse: &mut Array<f32>,
    mean: &mut Array<f32>,
    variance: &mut Array<f32>,
    epsilon: f32,
    #[comptime] biased: bool,
) {
    let over = 1.0f32 / f32::sqrt(spread + epsilon);
    centre[c] = middle;
    scale[c] = gamma[c] * over;
    shift[c] = beta[c];
    inverse[c] = over;
    let mut outer = middle;
    if comptime!(biased) {
        outer += bias[c];
    }
    mean[c] = outer;
    variance[c] = spread;
}

/// A unit for each channel, of whose moments there are parts.
#[cube(launch_unchecked)]
fn batch_kernel(
    parts: &Array<f32>,
    gamma: &Array<f32>,
    beta: &Array<f32>,
    bias: &Array<f32>,
    centre: &mut Array<f32>,
    scale: &mut Array<f32>,
    shift: &mut Array<f32>,
    inverse: &mut Array<f32>,
    mean: &mut Array<f32>,
    variance: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    epsilon: f32,
    #[comptime] biased: bool,
) {
    let c = unit_below(channels);
    let (middle, spread) = merged(parts, c, cubes);
    write_batch(
        c, middle, spread, gamma, beta, bias, centre, scale, shift, inverse, mean, variance,
        epsilon, biased,
    );
}

/// A cube for each channel, which finds its moments itself.
#[cube(launch_unchecked)]
fn small_batch_kernel<F: Float, N: Size>(
    y: &Array<Vector<F, N>>,
    gamma: &Array<f32>,
    beta: &Array<f32>,
    bias: &Array<f32>,
    centre: &mut Array<f32>,
    scale: &mut Array<f32>,
    shift: &mut Array<f32>,
    inverse: &mut Array<f32>,
    mean: &mut Array<f32>,
    variance: &mut Array<f32>,
    channels: usize,
    plane: usize,
    vectors: usize,
    epsilon: f32,
    #[comptime] biased: bool,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let (c, _) = channel_of_cube(channels, 1usize);
    let (count, middle, squares) =
        cube_moments::<F, N>(y, c, 0usize, channels, plane, vectors, 1usize, units);
    if UNIT_POS == 0 {
        let spread = squares / count;
        write_batch(
            c, middle, spread, gamma, beta, bias, centre, scale, shift, inverse, mean, variance,
            epsilon, biased,
        );
    }
}

/// Vectors of a unit that finds the moments of a channel in one cube, at most: reading them takes about as
/// long as the launch that is saved.
const MOST_OF_A_UNIT: usize = 64;

/// Of the moments of the map `y` itself, which is contiguous, and these: mean, with the bias, and variance.
pub fn of_batch<R: CubeRuntime>(
    y: &CubeTensor<R>,
    of: &Vectors<R>,
    epsilon: f32,
) -> (Norm<CubeTensor<R>>, [CubeTensor<R>; 2]) {
    let Plan { channels, plane, vectors, width, cubes, units } = Plan::new(y);
    let [centre, scale, shift, inverse, mean, variance] =
        empty_each(&of.gamma, [[channels]; 6], DType::F32);
    let client = &of.gamma.client;
    // SAFETY: all vectors have an element a channel, of which `y` has `vectors` vectors in planes and there are
    // three parts for each cube; units and cubes stop at the last channel.
    unsafe {
        if cubes == 1 || vectors <= MOST_OF_A_UNIT * units as usize {
            launch!(small_batch_kernel, row_of_cubes(client, channels, units), width;
                y, of.gamma, of.beta, of.bias, centre, scale, shift, inverse, mean, variance;
                channels, plane, vectors, epsilon, of.biased, units, y.dtype.into());
        } else {
            let parts = moment_parts(y.clone());
            launch!(batch_kernel, elementwise(client, channels);
                parts.sums, of.gamma, of.beta, of.bias, centre, scale, shift, inverse, mean, variance;
                channels, cubes, epsilon, of.biased);
        }
    }
    (Norm { centre, scale, shift, inverse }, [mean, variance])
}

#[cube(launch_unchecked)]
fn running_kernel(
    variance: &Array<f32>,
    gamma: &Array<f32>,
    beta: &Array<f32>,
    bias: &Array<f32>,
    scale: &mut Array<f32>,
    shift: &mut Array<f32>,
    inverse: &mut Array<f32>,
    channels: usize,
    epsilon: f32,
    #[comptime] biased: bool,
) {
    let c = unit_below(channels);
    let over = 1.0f32 / f32::sqrt(variance[c] + epsilon);
    let factor = gamma[c] * over;
    let mut at_centre = beta[c];
    if comptime!(biased) {
        at_centre += bias[c] * factor;
    }
    scale[c] = factor;
    shift[c] = at_centre;
    inverse[c] = over;
}

/// Of given moments, mean and variance.
pub fn of_running<R: CubeRuntime>(
    [mean, variance]: [CubeTensor<R>; 2],
    of: &Vectors<R>,
    epsilon: f32,
) -> Norm<CubeTensor<R>> {
    let channels = of.gamma.meta.num_elements();
    let [scale, shift, inverse] = empty_each(&of.gamma, [[channels]; 3], DType::F32);
    // SAFETY: all vectors have an element a channel, and units stop at the last one.
    unsafe {
        launch!(running_kernel, elementwise(&variance.client, channels);
            variance, of.gamma, of.beta, of.bias, scale, shift, inverse;
            channels, epsilon, of.biased);
    }
    Norm { centre: mean, scale, shift, inverse }
}

#[cube(launch_unchecked)]
fn gradients_kernel(
    parts: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    bias: &Array<f32>,
    sums: &mut Array<f32>,
    moment_grad: &mut Array<f32>,
    d_bias: &mut Array<f32>,
    d_gamma: &mut Array<f32>,
    d_beta: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
    #[comptime] biased: bool,
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
        if comptime!(biased) {
            whole += bias[c] * sum;
        }
        d_bias[c] = scale * sum;
    }
    d_gamma[c] = inverse * whole;
}

/// Of the sums of a gradient, in parts; `pixels` is how many a channel has, where the moments are of
/// these.
pub fn gradients<R: CubeRuntime>(
    parts: Parts<R>,
    norm: &Norm<CubeTensor<R>>,
    of: &Vectors<R>,
    pixels: Option<usize>,
) -> Gradients<R> {
    let Parts { sums: parts, channels, cubes } = parts;
    let shapes =
        [vec![2, channels], vec![2, channels], vec![channels], vec![channels], vec![channels]];
    let [sums, moment_grad, d_bias, d_gamma, d_beta] = empty_each(&parts, shapes, DType::F32);
    let share = pixels.map_or(0.0, |pixels| 1.0 / pixels as f32);
    // SAFETY: all vectors have an element a channel, sums and what flows through the
    // moments two, there are two parts for each
    // cube of each channel, and units stop at the last channel. What flows through the moments is
    // written where there is any.
    unsafe {
        launch!(gradients_kernel, elementwise(&sums.client, channels);
            parts, norm.scale, norm.inverse, of.bias, sums, moment_grad, d_bias, d_gamma, d_beta;
            channels, cubes, share, pixels.is_some(), of.biased);
    }
    let moment_grad = pixels.map(|_| moment_grad);
    Gradients { sums, moment_grad, vectors: [d_bias, d_gamma, d_beta] }
}
