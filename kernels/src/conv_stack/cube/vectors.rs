//! What a block has by channel: what it normalises with, the gradients of its vectors, and how both
//! change. A launch each, of a unit for every channel of every lane.
//!
//! `v = (y - centre) * scale + shift`, with `scale = gamma * inverse`, and `inverse` one over the
//! deviation. Under the batch's own moments a bias moves the centre and `v` not at all; given ones
//! take it as a part of the shift.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::channels::cube::{Parts, added, merged};
use crate::cube::{elementwise, empty};

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
    fn empty(like: &CubeTensor<R>) -> Self {
        let one = || empty(like, like.meta.shape().clone(), DType::F32);
        Self { centre: one(), scale: one(), shift: one(), inverse: one() }
    }

    /// Centre, scale and shift.
    pub fn map(&self) -> [CubeTensor<R>; 3] {
        [&self.centre, &self.scale, &self.shift].map(Clone::clone)
    }
}

/// What the moments add to the gradient of a map, and the gradients of the block's vectors.
pub struct Gradients<R: CubeRuntime> {
    /// The sums over every channel of `dv` and of `dv * (y - centre)`, `[2, c]`.
    pub sums: CubeTensor<R>,
    /// `[2, c]`; none where the moments are given.
    pub drift: Option<CubeTensor<R>>,
    /// Of bias, gamma and beta.
    pub vectors: [CubeTensor<R>; 3],
}

/// How a block's normalisation moves.
#[derive(Clone)]
pub struct NormAlong<T> {
    /// Of the centre, `[c]`.
    pub centre: T,
    /// Of the inverse deviation, `[c]`.
    pub inverse: T,
    /// Of scale, and of `v` at the centre, `[2, c]`.
    pub bend: T,
}

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
    let c = ABSOLUTE_POS;
    if c >= channels {
        terminate!();
    }
    let (middle, spread) = merged(parts, c, cubes);
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

/// Of the batch's own moments, in parts, and these: mean, with the bias, and variance.
pub fn of_batch<R: CubeRuntime>(
    parts: Parts<R>,
    of: &Vectors<R>,
    epsilon: f32,
) -> (Norm<CubeTensor<R>>, [CubeTensor<R>; 2]) {
    let norm = Norm::empty(&of.gamma);
    let moments = [(); 2].map(|()| empty(&of.gamma, [parts.channels], DType::F32));
    let [mean, variance] = moments.clone().map(CubeTensor::into_array_arg);
    let (count, dim) = elementwise(&of.gamma.client, parts.channels);
    // SAFETY: all vectors have an element a channel, and there are three parts for each cube of each;
    // units stop at the last channel.
    unsafe {
        batch_kernel::launch_unchecked::<R>(
            &of.gamma.client,
            count,
            dim,
            parts.sums.into_array_arg(),
            of.gamma.clone().into_array_arg(),
            of.beta.clone().into_array_arg(),
            of.bias.clone().into_array_arg(),
            norm.centre.clone().into_array_arg(),
            norm.scale.clone().into_array_arg(),
            norm.shift.clone().into_array_arg(),
            norm.inverse.clone().into_array_arg(),
            mean,
            variance,
            parts.channels,
            parts.cubes,
            epsilon,
            of.biased,
        );
    }
    (norm, moments)
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
    let c = ABSOLUTE_POS;
    if c >= channels {
        terminate!();
    }
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
    let norm = Norm { centre: mean, ..Norm::empty(&of.gamma) };
    let channels = of.gamma.meta.num_elements();
    let (count, dim) = elementwise(&variance.client, channels);
    let client = variance.client.clone();
    // SAFETY: all vectors have an element a channel, and units stop at the last one.
    unsafe {
        running_kernel::launch_unchecked::<R>(
            &client,
            count,
            dim,
            variance.into_array_arg(),
            of.gamma.clone().into_array_arg(),
            of.beta.clone().into_array_arg(),
            of.bias.clone().into_array_arg(),
            norm.scale.clone().into_array_arg(),
            norm.shift.clone().into_array_arg(),
            norm.inverse.clone().into_array_arg(),
            channels,
            epsilon,
            of.biased,
        );
    }
    norm
}

#[cube(launch_unchecked)]
fn gradients_kernel(
    parts: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    bias: &Array<f32>,
    sums: &mut Array<f32>,
    drift: &mut Array<f32>,
    d_bias: &mut Array<f32>,
    d_gamma: &mut Array<f32>,
    d_beta: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
    #[comptime] biased: bool,
) {
    let c = ABSOLUTE_POS;
    if c >= channels {
        terminate!();
    }
    let (sum, product) = added(parts, c, cubes);
    let (scale, inverse) = (scale[c], inverse[c]);
    sums[c] = sum;
    sums[channels + c] = product;
    d_beta[c] = sum;
    let mut whole = product;
    if comptime!(batch) {
        drift[c] = -(scale * inverse * (inverse * product) * share);
        drift[channels + c] = -(scale * (sum * share));
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
    let two = || empty(&parts, [2, channels], DType::F32);
    let (sums, drift) = (two(), pixels.map(|_| two()));
    let vectors = [(); 3].map(|()| empty(&parts, [channels], DType::F32));
    let [d_bias, d_gamma, d_beta] = vectors.clone().map(CubeTensor::into_array_arg);
    let (count, dim) = elementwise(&sums.client, channels);
    // SAFETY: all vectors have an element a channel, sums and drift two, there are two parts for each
    // cube of each channel, and units stop at the last channel. A drift is written where there is one.
    unsafe {
        gradients_kernel::launch_unchecked::<R>(
            &sums.client,
            count,
            dim,
            parts.into_array_arg(),
            norm.scale.clone().into_array_arg(),
            norm.inverse.clone().into_array_arg(),
            of.bias.clone().into_array_arg(),
            sums.clone().into_array_arg(),
            drift.clone().unwrap_or_else(|| sums.clone()).into_array_arg(),
            d_bias,
            d_gamma,
            d_beta,
            channels,
            cubes,
            pixels.map_or(0.0, |pixels| 1.0 / pixels as f32),
            pixels.is_some(),
            of.biased,
        );
    }
    Gradients { sums, drift, vectors }
}

#[cube(launch_unchecked)]
fn along_kernel(
    parts: &Array<f32>,
    gamma: &Array<f32>,
    bias: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    moved_gamma: &Array<f32>,
    moved_beta: &Array<f32>,
    moved_bias: &Array<f32>,
    moved_centre: &mut Array<f32>,
    moved_inverse: &mut Array<f32>,
    bend: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
    #[comptime] biased: bool,
    #[comptime] moves: u32,
) {
    let c = ABSOLUTE_POS;
    if c >= channels {
        terminate!();
    }
    let (scale, inverse) = (scale[c], inverse[c]);
    let mut tilt = 0.0f32;
    let mut level = 0.0f32;
    if comptime!(moves & 1 != 0) {
        tilt = moved_gamma[c] * inverse;
    }
    if comptime!(moves & 2 != 0) {
        level = moved_beta[c];
    }
    if comptime!(batch) {
        let (sum, product) = added(parts, c, cubes);
        let centre = sum * share;
        let over = -(inverse * inverse * inverse * (product * share));
        tilt += gamma[c] * over;
        level -= scale * centre;
        moved_centre[c] = centre;
        moved_inverse[c] = over;
    } else {
        if comptime!(biased) {
            level += bias[c] * tilt;
            if comptime!(moves & 4 != 0) {
                level += moved_bias[c] * scale;
            }
        }
        moved_centre[c] = 0.0f32;
        moved_inverse[c] = 0.0f32;
    }
    bend[c] = tilt;
    bend[channels + c] = level;
}

/// How bias, gamma and beta move, those without a direction standing still.
pub type Moves<R> = [Option<CubeTensor<R>>; 3];

/// Of the sums of how the map moves, in parts, where the moments are of its `pixels`.
pub fn along<R: CubeRuntime>(
    parts: Option<(Parts<R>, usize)>,
    norm: &Norm<CubeTensor<R>>,
    of: &Vectors<R>,
    [bias, gamma, beta]: &Moves<R>,
) -> NormAlong<CubeTensor<R>> {
    let channels = of.gamma.meta.num_elements();
    let one = || empty(&of.gamma, [channels], DType::F32);
    let found = NormAlong {
        centre: one(),
        inverse: one(),
        bend: empty(&of.gamma, [2, channels], DType::F32),
    };
    let moves =
        [gamma, beta, bias].iter().rev().fold(0, |bits, of| bits << 1 | of.is_some() as u32);
    // Not read where it stands still.
    let any = |of: &Option<CubeTensor<R>>| of.as_ref().unwrap_or(&norm.scale).clone();
    let batch = parts.is_some();
    let (cubes, share, parts) = match parts {
        Some((parts, pixels)) => (parts.cubes, 1.0 / pixels as f32, parts.sums),
        None => (0, 0.0, norm.scale.clone()),
    };
    let client = found.bend.client.clone();
    let (count, dim) = elementwise(&client, channels);
    // SAFETY: all vectors have an element a channel and the bend two, there are two parts for each cube
    // of each channel where they are read, and units stop at the last channel.
    unsafe {
        along_kernel::launch_unchecked::<R>(
            &client,
            count,
            dim,
            parts.into_array_arg(),
            of.gamma.clone().into_array_arg(),
            of.bias.clone().into_array_arg(),
            norm.scale.clone().into_array_arg(),
            norm.inverse.clone().into_array_arg(),
            any(gamma).into_array_arg(),
            any(beta).into_array_arg(),
            any(bias).into_array_arg(),
            found.centre.clone().into_array_arg(),
            found.inverse.clone().into_array_arg(),
            found.bend.clone().into_array_arg(),
            channels,
            cubes,
            share,
            batch,
            of.biased,
            moves,
        );
    }
    found
}

#[cube(launch_unchecked)]
fn gradients_along_kernel(
    parts: &Array<f32>,
    sums: &Array<f32>,
    bias: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    moved_centre: &Array<f32>,
    moved_inverse: &Array<f32>,
    bend: &Array<f32>,
    moved_bias: &Array<f32>,
    drift: &mut Array<f32>,
    d_bias: &mut Array<f32>,
    d_gamma: &mut Array<f32>,
    d_beta: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
    #[comptime] biased: bool,
    #[comptime] bias_moves: bool,
) {
    let c = ABSOLUTE_POS;
    if c >= channels {
        terminate!();
    }
    let (moved_sum, moved_product) = added(parts, c, cubes);
    let (sum, product) = (sums[c], sums[channels + c]);
    let (scale, inverse, tilt) = (scale[c], inverse[c], bend[c]);
    d_beta[c] = moved_sum;
    if comptime!(batch) {
        let over = moved_inverse[c];
        let square = inverse * inverse;
        let by_move = -(scale * square * product * share);
        let moved_square = 2.0f32 * inverse * over * product + square * moved_product;
        drift[c] = by_move;
        drift[channels + c] = -((tilt * square * product + scale * moved_square) * share);
        let level = -((tilt * sum + scale * moved_sum) * share);
        drift[2 * channels + c] = level - by_move * moved_centre[c];
        d_gamma[c] = inverse * moved_product + over * product;
        d_bias[c] = 0.0f32;
    } else {
        let mut whole = moved_product;
        if comptime!(biased) {
            whole += bias[c] * moved_sum;
            if comptime!(bias_moves) {
                whole += moved_bias[c] * sum;
            }
        }
        d_gamma[c] = inverse * whole;
        d_bias[c] = tilt * sum + scale * moved_sum;
    }
}

/// How [`gradients`] change, of how the sums do, in parts: the drift is `[3, c]`.
pub fn gradients_along<R: CubeRuntime>(
    parts: Parts<R>,
    sums: CubeTensor<R>,
    (norm, moved): (&Norm<CubeTensor<R>>, &NormAlong<CubeTensor<R>>),
    of: &Vectors<R>,
    moved_bias: &Option<CubeTensor<R>>,
    pixels: Option<usize>,
) -> (Option<CubeTensor<R>>, [CubeTensor<R>; 3]) {
    let Parts { sums: parts, channels, cubes } = parts;
    let drift = pixels.map(|_| empty(&parts, [3, channels], DType::F32));
    let vectors = [(); 3].map(|()| empty(&parts, [channels], DType::F32));
    let [d_bias, d_gamma, d_beta] = vectors.clone().map(CubeTensor::into_array_arg);
    let bias_moves = moved_bias.is_some();
    let moved_bias = moved_bias.as_ref().unwrap_or(&of.gamma).clone();
    let client = sums.client.clone();
    let (count, dim) = elementwise(&client, channels);
    // SAFETY: as in `gradients`; a drift, of three elements a channel, is written where there is one.
    unsafe {
        gradients_along_kernel::launch_unchecked::<R>(
            &client,
            count,
            dim,
            parts.into_array_arg(),
            sums.into_array_arg(),
            of.bias.clone().into_array_arg(),
            norm.scale.clone().into_array_arg(),
            norm.inverse.clone().into_array_arg(),
            moved.centre.clone().into_array_arg(),
            moved.inverse.clone().into_array_arg(),
            moved.bend.clone().into_array_arg(),
            moved_bias.into_array_arg(),
            drift.clone().unwrap_or_else(|| vectors[0].clone()).into_array_arg(),
            d_bias,
            d_gamma,
            d_beta,
            channels,
            cubes,
            pixels.map_or(0.0, |pixels| 1.0 / pixels as f32),
            pixels.is_some(),
            of.biased,
            bias_moves,
        );
    }
    (drift, vectors)
}
