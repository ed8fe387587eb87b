//! The vectors that a block normalises with, by channel. A launch each, of a unit for every channel of every lane; a
//! cube, where that finds the moments of a small map too.
//!
//! `v = (y - centre) * scale + shift`, with `scale = gamma * inverse`, and `inverse` one over the
//! deviation. Under the batch's own moments a bias moves the centre and `v` not at all; given ones
//! take it as a part of the shift.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{Plan, channel_of_cube, cube_moments, merged, moment_parts};
use crate::cube::{array, arrays, elementwise, empty_each, launch, row_of_cubes, unit_below};

/// A block's parameters by channel, `[c]` each.
pub struct Vectors<R: CubeRuntime> {
    pub bias: Option<CubeTensor<R>>,
    pub gamma: CubeTensor<R>,
    pub beta: CubeTensor<R>,
}

/// The vectors that a block normalises with, `[c]` each.
pub struct Norm<R: CubeRuntime> {
    pub centre: CubeTensor<R>,
    pub scale: CubeTensor<R>,
    pub shift: CubeTensor<R>,
    pub inverse: CubeTensor<R>,
}

impl<R: CubeRuntime> Norm<R> {
    /// Centre, scale and shift.
    pub fn map(&self) -> [CubeTensor<R>; 3] {
        [&self.centre, &self.scale, &self.shift].map(Clone::clone)
    }
}

/// The vectors of each channel by its own moments: those that normalise it, and the moments, of which
/// the mean has the bias.
#[derive(CubeType, CubeLaunch)]
struct Found {
    centre: Array<f32>,
    scale: Array<f32>,
    inverse: Array<f32>,
    mean: Array<f32>,
    variance: Array<f32>,
}

#[cube]
fn write_batch(
    c: usize,
    mean: f32,
    variance: f32,
    gamma: &Array<f32>,
    biases: &Sequence<Array<f32>>,
    vectors_of_channel: &mut Found,
    epsilon: f32,
) {
    let inverse = 1.0f32 / f32::sqrt(variance + epsilon);
    vectors_of_channel.centre[c] = mean;
    vectors_of_channel.scale[c] = gamma[c] * inverse;
    vectors_of_channel.inverse[c] = inverse;
    let mut outer = mean;
    if comptime!(biases.len() == 1) {
        outer += biases.index(0usize)[c];
    }
    vectors_of_channel.mean[c] = outer;
    vectors_of_channel.variance[c] = variance;
}

/// A unit for each channel, of whose moments there are parts.
#[cube(launch_unchecked)]
fn batch_kernel(
    parts: &Array<f32>,
    gamma: &Array<f32>,
    biases: &Sequence<Array<f32>>,
    vectors_of_channel: &mut Found,
    channels: usize,
    cubes: usize,
    epsilon: f32,
) {
    let c = unit_below(channels);
    let (mean, variance) = merged(parts, c, cubes);
    write_batch(c, mean, variance, gamma, biases, vectors_of_channel, epsilon);
}

/// A cube for each channel, which finds its moments itself.
#[cube(launch_unchecked)]
fn small_batch_kernel<F: Float, N: Size>(
    y: &Array<Vector<F, N>>,
    gamma: &Array<f32>,
    biases: &Sequence<Array<f32>>,
    vectors_of_channel: &mut Found,
    channels: usize,
    plane: usize,
    vectors: usize,
    epsilon: f32,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let (c, _) = channel_of_cube(channels, 1usize);
    let (count, mean, squares) =
        cube_moments::<F, N>(y, c, 0usize, channels, plane, vectors, 1usize, units);
    if UNIT_POS == 0 {
        write_batch(c, mean, squares / count, gamma, biases, vectors_of_channel, epsilon);
    }
}

/// Vectors of a unit that finds the moments of a channel in one cube, at most: reading them takes about as
/// long as the launch that is saved.
const MOST_OF_A_UNIT: usize = 64;

/// The vectors by the moments of the map `y` itself, which is contiguous, and these moments: mean, with the bias, and
/// variance.
pub fn batch_norm_vectors<R: CubeRuntime>(
    y: &CubeTensor<R>,
    of: &Vectors<R>,
    epsilon: f32,
) -> (Norm<R>, [CubeTensor<R>; 2]) {
    let Plan { channels, plane, vectors, width, cubes, units } = Plan::new(y);
    let tensors = empty_each(&of.gamma, [[channels]; 5], DType::F32);
    let [centre, scale, inverse, mean, variance] = tensors.each_ref().map(array);
    let written = FoundLaunch::new(centre, scale, inverse, mean, variance);
    let (client, biases) = (&of.gamma.client, arrays(&of.bias));
    // SAFETY: all vectors have an element a channel, of which `y` has `vectors` vectors in planes and there are
    // three parts for each cube; units and cubes stop at the last channel.
    unsafe {
        if cubes == 1 || vectors <= MOST_OF_A_UNIT * units as usize {
            launch!(small_batch_kernel, row_of_cubes(client, channels, units), width;
                y, of.gamma;
                biases, written, channels, plane, vectors, epsilon, units, y.dtype.into());
        } else {
            let parts = moment_parts(y.clone());
            launch!(batch_kernel, elementwise(client, channels);
                parts.sums, of.gamma; biases, written, channels, cubes, epsilon);
        }
    }
    let [centre, scale, inverse, mean, variance] = tensors;
    (Norm { centre, scale, shift: of.beta.clone(), inverse }, [mean, variance])
}

#[cube(launch_unchecked)]
fn running_kernel(
    variance: &Array<f32>,
    gamma: &Array<f32>,
    beta: &Array<f32>,
    scale: &mut Array<f32>,
    shift: &mut Array<f32>,
    inverse: &mut Array<f32>,
    biases: &Sequence<Array<f32>>,
    channels: usize,
    epsilon: f32,
) {
    let c = unit_below(channels);
    let over = 1.0f32 / f32::sqrt(variance[c] + epsilon);
    let factor = gamma[c] * over;
    let mut at_centre = beta[c];
    if comptime!(biases.len() == 1) {
        at_centre += biases.index(0usize)[c] * factor;
    }
    scale[c] = factor;
    shift[c] = at_centre;
    inverse[c] = over;
}

/// The vectors by given moments, mean and variance.
pub fn running_norm_vectors<R: CubeRuntime>(
    [mean, variance]: [CubeTensor<R>; 2],
    of: &Vectors<R>,
    epsilon: f32,
) -> Norm<R> {
    let channels = of.gamma.meta.num_elements();
    let [scale, shift, inverse] = empty_each(&of.gamma, [[channels]; 3], DType::F32);
    // SAFETY: all vectors have an element a channel, and units stop at the last one.
    unsafe {
        launch!(running_kernel, elementwise(&variance.client, channels);
            variance, of.gamma, of.beta, scale, shift, inverse;
            arrays(&of.bias), channels, epsilon);
    }
    Norm { centre: mean, scale, shift, inverse }
}
