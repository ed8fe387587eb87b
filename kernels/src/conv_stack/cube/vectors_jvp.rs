//! The tangents of what a block has by channel: of what it normalises with, and of the gradients of its
//! vectors. A launch each, of a unit for every channel of every lane.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::vectors::{Norm, Vectors};
use crate::channels::cube::{Input, Parts, added};
use crate::cube::{arrays, elementwise, empty_each, launch, unit_below};
use crate::norm_relu::cube::Gradients;

/// The tangent of a block's [`Norm`].
pub struct NormTangent<R: CubeRuntime> {
    /// The tangent of the centre, `[c]`.
    pub centre: CubeTensor<R>,
    /// The tangent of the inverse deviation, `[c]`.
    pub inverse: CubeTensor<R>,
    /// The tangents of scale, and of `v` at the centre, `[2, c]`.
    pub map_tangent: CubeTensor<R>,
}

impl<R: CubeRuntime> NormTangent<R> {
    /// A map that is normalised, with its tangent.
    pub fn input(&self, x: &CubeTensor<R>, tangent: &CubeTensor<R>, norm: &Norm<R>) -> Input<R> {
        let tangents = Some([tangent.clone(), self.map_tangent.clone()]);
        Input { x: x.clone(), map: norm.map(), tangents }
    }
}

#[cube(launch_unchecked)]
fn norm_jvp_kernel(
    gamma: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    centre_tangent: &mut Array<f32>,
    inverse_tangent: &mut Array<f32>,
    map_tangent: &mut Array<f32>,
    parts: &Sequence<Array<f32>>,
    biases: &Sequence<Array<f32>>,
    bias_tangents: &Sequence<Array<f32>>,
    gamma_tangents: &Sequence<Array<f32>>,
    beta_tangents: &Sequence<Array<f32>>,
    channels: usize,
    cubes: usize,
    share: f32,
) {
    let c = unit_below(channels);
    let (scale, inverse) = (scale[c], inverse[c]);
    let mut slope = 0.0f32;
    let mut level = 0.0f32;
    if comptime!(gamma_tangents.len() == 1) {
        slope = gamma_tangents.index(0usize)[c] * inverse;
    }
    if comptime!(beta_tangents.len() == 1) {
        level = beta_tangents.index(0usize)[c];
    }
    if comptime!(parts.len() == 1) {
        let (sum, product) = added(parts.index(0usize), c, cubes);
        let centre = sum * share;
        let over = -(inverse * inverse * inverse * (product * share));
        slope += gamma[c] * over;
        level -= scale * centre;
        centre_tangent[c] = centre;
        inverse_tangent[c] = over;
    } else {
        if comptime!(biases.len() == 1) {
            level += biases.index(0usize)[c] * slope;
            if comptime!(bias_tangents.len() == 1) {
                level += bias_tangents.index(0usize)[c] * scale;
            }
        }
        centre_tangent[c] = 0.0f32;
        inverse_tangent[c] = 0.0f32;
    }
    map_tangent[c] = slope;
    map_tangent[channels + c] = level;
}

/// The tangent of a normalisation: of the sums of the map's tangent, in parts, where the moments are of
/// its `pixels`, `None` where they are given; and of the tangents of bias, gamma and beta, of which `None`
/// is zero.
pub fn norm_jvp<R: CubeRuntime>(
    parts: Option<(Parts<R>, usize)>,
    norm: &Norm<R>,
    of: &Vectors<R>,
    tangents: &[Option<CubeTensor<R>>; 3],
) -> NormTangent<R> {
    let channels = of.gamma.meta.num_elements();
    let shapes = [vec![channels], vec![channels], vec![2, channels]];
    let [centre, inverse, map_tangent] = empty_each(&of.gamma, shapes, DType::F32);
    let (cubes, share) =
        parts.as_ref().map_or((0, 0.0), |(parts, pixels)| (parts.cubes, 1.0 / *pixels as f32));
    let sums = parts.map(|(parts, _)| parts.sums);
    let [bias_tangent, gamma_tangent, beta_tangent] = tangents.each_ref().map(arrays);
    // SAFETY: all vectors have an element a channel and the map tangent two, there are two parts for each cube
    // of each channel, and units stop at the last channel.
    unsafe {
        launch!(norm_jvp_kernel, elementwise(&of.gamma.client, channels);
            of.gamma, norm.scale, norm.inverse, centre, inverse, map_tangent;
            arrays(&sums), arrays(&of.bias), bias_tangent, gamma_tangent, beta_tangent,
            channels, cubes, share);
    }
    NormTangent { centre, inverse, map_tangent }
}

#[cube(launch_unchecked)]
fn gradients_jvp_kernel(
    parts: &Array<f32>,
    sums: &Array<f32>,
    scale: &Array<f32>,
    inverse: &Array<f32>,
    centre_tangent: &Array<f32>,
    inverse_tangent: &Array<f32>,
    map_tangent: &Array<f32>,
    moment_grad: &mut Array<f32>,
    d_bias: &mut Array<f32>,
    d_gamma: &mut Array<f32>,
    d_beta: &mut Array<f32>,
    biases: &Sequence<Array<f32>>,
    bias_tangents: &Sequence<Array<f32>>,
    channels: usize,
    cubes: usize,
    share: f32,
    #[comptime] batch: bool,
) {
    let c = unit_below(channels);
    let (sum_tangent, product_tangent) = added(parts, c, cubes);
    let (sum, product) = (sums[c], sums[channels + c]);
    let (scale, inverse, slope) = (scale[c], inverse[c], map_tangent[c]);
    d_beta[c] = sum_tangent;
    if comptime!(batch) {
        let over = inverse_tangent[c];
        let square = inverse * inverse;
        let by_move = -(scale * square * product * share);
        let square_tangent = 2.0f32 * inverse * over * product + square * product_tangent;
        moment_grad[c] = by_move;
        moment_grad[channels + c] = -((slope * square * product + scale * square_tangent) * share);
        let level = -((slope * sum + scale * sum_tangent) * share);
        moment_grad[2 * channels + c] = level - by_move * centre_tangent[c];
        d_gamma[c] = inverse * product_tangent + over * product;
        d_bias[c] = 0.0f32;
    } else {
        let mut whole = product_tangent;
        if comptime!(biases.len() == 1) {
            whole += biases.index(0usize)[c] * sum_tangent;
            if comptime!(bias_tangents.len() == 1) {
                whole += bias_tangents.index(0usize)[c] * sum;
            }
        }
        d_gamma[c] = inverse * whole;
        d_bias[c] = slope * sum + scale * sum_tangent;
    }
}

/// The tangents of [`gradients`](crate::norm_relu::cube::gradients), of those of the sums, in parts, with the
/// sums themselves; through the moments they are `[3, c]`.
pub fn gradients_jvp<R: CubeRuntime>(
    parts: Parts<R>,
    sums: CubeTensor<R>,
    (norm, tangent): (&Norm<R>, &NormTangent<R>),
    [bias, bias_tangent]: [&Option<CubeTensor<R>>; 2],
    pixels: Option<usize>,
) -> Gradients<R> {
    let Parts { sums: parts, channels, cubes } = parts;
    let shapes = [vec![3, channels], vec![channels], vec![channels], vec![channels]];
    let [moment_grad, d_bias, d_gamma, d_beta] = empty_each(&parts, shapes, DType::F32);
    let share = pixels.map_or(0.0, |pixels| 1.0 / pixels as f32);
    // SAFETY: as in `gradients`; what flows through the moments, three elements a channel, is written where
    // there is any.
    unsafe {
        launch!(gradients_jvp_kernel, elementwise(&sums.client, channels);
            parts, sums, norm.scale, norm.inverse, tangent.centre, tangent.inverse,
            tangent.map_tangent, moment_grad, d_bias, d_gamma, d_beta;
            arrays(bias), arrays(bias_tangent), channels, cubes, share, pixels.is_some());
    }
    let moment_grad = pixels.map(|_| moment_grad);
    Gradients { sums, moment_grad, vectors: [d_bias, d_gamma, d_beta] }
}
