//! The tangents of what a block has by channel: of what it normalises with, and of the gradients of its
//! vectors. A launch each, of a unit for every channel of every lane.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::vectors::{Gradients, Norm, Vectors};
use crate::channels::cube::{Input, Parts, added};
use crate::cube::{elementwise, empty_each, launch, unit_below};

/// The tangent of a block's [`Norm`].
#[derive(Clone)]
pub struct NormTangent<T> {
    /// Of the centre, `[c]`.
    pub centre: T,
    /// Of the inverse deviation, `[c]`.
    pub inverse: T,
    /// Of scale, and of `v` at the centre, `[2, c]`.
    pub map_tangent: T,
}

impl<R: CubeRuntime> NormTangent<CubeTensor<R>> {
    /// A map that is normalised, with its tangent.
    pub fn input(
        &self,
        x: &CubeTensor<R>,
        tangent: &CubeTensor<R>,
        norm: &Norm<CubeTensor<R>>,
    ) -> Input<R> {
        let tangents = Some([tangent.clone(), self.map_tangent.clone()]);
        Input { x: x.clone(), map: norm.map(), tangents }
    }
}

#[cube(launch_unchecked)]
fn norm_jvp_kernel(
    parts: &Array<f32>,
    gamma: &Array<f32>,
    bias: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    gamma_tangent: &Array<f32>,
    beta_tangent: &Array<f32>,
    bias_tangent: &Array<f32>,
    centre_tangent: &mut Array<f32>,
    inverse_tangent: &mut Array<f32>,
    map_tangent: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
    #[comptime] biased: bool,
    #[comptime] has_tangent: u32,
) {
    let c = unit_below(channels);
    let (scale, inverse) = (scale[c], inverse[c]);
    let mut tilt = 0.0f32;
    let mut level = 0.0f32;
    if comptime!(has_tangent & 1 != 0) {
        tilt = gamma_tangent[c] * inverse;
    }
    if comptime!(has_tangent & 2 != 0) {
        level = beta_tangent[c];
    }
    if comptime!(batch) {
        let (sum, product) = added(parts, c, cubes);
        let centre = sum * share;
        let over = -(inverse * inverse * inverse * (product * share));
        tilt += gamma[c] * over;
        level -= scale * centre;
        centre_tangent[c] = centre;
        inverse_tangent[c] = over;
    } else {
        if comptime!(biased) {
            level += bias[c] * tilt;
            if comptime!(has_tangent & 4 != 0) {
                level += bias_tangent[c] * scale;
            }
        }
        centre_tangent[c] = 0.0f32;
        inverse_tangent[c] = 0.0f32;
    }
    map_tangent[c] = tilt;
    map_tangent[channels + c] = level;
}

/// The tangents of bias, gamma and beta; `None` is zero.
pub type VectorTangents<R> = [Option<CubeTensor<R>>; 3];

/// The tangent of a normalisation: of the sums of the map's tangent, in parts, where the moments are of
/// its `pixels`; `None` where they are given.
pub fn norm_jvp<R: CubeRuntime>(
    parts: Option<(Parts<R>, usize)>,
    norm: &Norm<CubeTensor<R>>,
    of: &Vectors<R>,
    [bias, gamma, beta]: &VectorTangents<R>,
) -> NormTangent<CubeTensor<R>> {
    let channels = of.gamma.meta.num_elements();
    let shapes = [vec![channels], vec![channels], vec![2, channels]];
    let [centre, inverse, map_tangent] = empty_each(&of.gamma, shapes, DType::F32);
    let found = NormTangent { centre, inverse, map_tangent };
    let has_tangent =
        [gamma, beta, bias].iter().rev().fold(0, |bits, of| bits << 1 | of.is_some() as u32);
    // Not read where the tangent is zero.
    let [gamma, beta, bias] =
        [gamma, beta, bias].map(|tangent| tangent.as_ref().unwrap_or(&norm.scale));
    let batch = parts.is_some();
    let (cubes, share, parts) = match parts {
        Some((parts, pixels)) => (parts.cubes, 1.0 / pixels as f32, parts.sums),
        None => (0, 0.0, norm.scale.clone()),
    };
    // SAFETY: all vectors have an element a channel and the map tangent two, there are two parts for each cube
    // of each channel where they are read, and units stop at the last channel.
    unsafe {
        launch!(norm_jvp_kernel, elementwise(&of.gamma.client, channels);
            parts, of.gamma, of.bias, norm.scale, norm.inverse, gamma, beta, bias, found.centre,
            found.inverse, found.map_tangent;
            channels, cubes, share, batch, of.biased, has_tangent);
    }
    found
}

#[cube(launch_unchecked)]
fn gradients_jvp_kernel(
    parts: &Array<f32>,
    sums: &Array<f32>,
    bias: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    centre_tangent: &Array<f32>,
    inverse_tangent: &Array<f32>,
    map_tangent: &Array<f32>,
    bias_tangent: &Array<f32>,
    moment_grad: &mut Array<f32>,
    d_bias: &mut Array<f32>,
    d_gamma: &mut Array<f32>,
    d_beta: &mut Array<f32>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
    #[comptime] biased: bool,
    #[comptime] has_bias_tangent: bool,
) {
    let c = unit_below(channels);
    let (sum_tangent, product_tangent) = added(parts, c, cubes);
    let (sum, product) = (sums[c], sums[channels + c]);
    let (scale, inverse, tilt) = (scale[c], inverse[c], map_tangent[c]);
    d_beta[c] = sum_tangent;
    if comptime!(batch) {
        let over = inverse_tangent[c];
        let square = inverse * inverse;
        let by_move = -(scale * square * product * share);
        let square_tangent = 2.0f32 * inverse * over * product + square * product_tangent;
        moment_grad[c] = by_move;
        moment_grad[channels + c] = -((tilt * square * product + scale * square_tangent) * share);
        let level = -((tilt * sum + scale * sum_tangent) * share);
        moment_grad[2 * channels + c] = level - by_move * centre_tangent[c];
        d_gamma[c] = inverse * product_tangent + over * product;
        d_bias[c] = 0.0f32;
    } else {
        let mut whole = product_tangent;
        if comptime!(biased) {
            whole += bias[c] * sum_tangent;
            if comptime!(has_bias_tangent) {
                whole += bias_tangent[c] * sum;
            }
        }
        d_gamma[c] = inverse * whole;
        d_bias[c] = tilt * sum + scale * sum_tangent;
    }
}

/// The tangents of [`gradients`](super::vectors::gradients), of those of the sums, in parts, with the
/// sums themselves; through the moments they are `[3, c]`.
pub fn gradients_jvp<R: CubeRuntime>(
    parts: Parts<R>,
    sums: CubeTensor<R>,
    (norm, tangent): (&Norm<CubeTensor<R>>, &NormTangent<CubeTensor<R>>),
    of: &Vectors<R>,
    bias_tangent: &Option<CubeTensor<R>>,
    pixels: Option<usize>,
) -> Gradients<R> {
    let Parts { sums: parts, channels, cubes } = parts;
    let shapes = [vec![3, channels], vec![channels], vec![channels], vec![channels]];
    let [moment_grad, d_bias, d_gamma, d_beta] = empty_each(&parts, shapes, DType::F32);
    let share = pixels.map_or(0.0, |pixels| 1.0 / pixels as f32);
    // SAFETY: as in `vectors::gradients`; what flows through the moments, three elements a channel, is written where
    // there is any.
    unsafe {
        launch!(gradients_jvp_kernel, elementwise(&sums.client, channels);
            parts, sums, of.bias, norm.scale, norm.inverse, tangent.centre, tangent.inverse,
            tangent.map_tangent, bias_tangent.as_ref().unwrap_or(&of.gamma),
            moment_grad, d_bias, d_gamma, d_beta;
            channels, cubes, share, pixels.is_some(), of.biased, bias_tangent.is_some());
    }
    let moment_grad = pixels.map(|_| moment_grad);
    Gradients { sums, moment_grad, vectors: [d_bias, d_gamma, d_beta] }
}
