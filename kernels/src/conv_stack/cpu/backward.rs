//! Backward pass of the saved.

use std::mem;

use rayon::prelude::*;

use super::forward::Saved;
use super::norm::NormGradient;
use super::per_batch::PerBatch;
use super::shape::StackShape;
use crate::cpu::images::Images;

/// The gradients of the outputs of all blocks, in tiles: what [`backward`] saves for
/// [`jvp_of_vjp`](super::jvp_of_vjp()).
pub struct IntermediateGrads(pub(super) Vec<Images>);

/// The gradient of the input `[n, c, h, w]` if it is asked for, and those of the parameters in
/// `dparams`, given the gradient `dy [n, c, h, w]` of the output; with those between the blocks where
/// `keep` asks for them.
///
/// `dparams` has four parts a block, as the parameters have: weight, bias, gamma and beta. With batch
/// statistics the gradient of every convolution's bias is exactly zero.
///
/// # Panics
/// If `shape` is not the one of the forward pass, or a length does not fit it.
pub fn backward(
    shape: &StackShape,
    saved: &Saved,
    dy: &[f32],
    (need_dx, keep): (bool, bool),
    dparams: &mut [&mut [f32]],
) -> (Option<Vec<f32>>, Option<IntermediateGrads>) {
    assert_eq!(shape, &saved.shape, "the shape of the forward pass");
    let wanted: usize = shape.output().iter().product();
    assert_eq!(dy.len(), wanted, "the gradient of the output of {shape:?}");
    let blocks = shape.geometry();
    assert_eq!(dparams.len(), 4 * blocks.len(), "the parts of the gradients of {shape:?}");

    let last = blocks.len() - 1;
    let (mut grad, mut sums) = saved.start(dy);
    let (mut dx, mut intermediate_grads) = (None, Vec::with_capacity(blocks.len()));
    for k in (0..=last).rev() {
        let norm = saved.norm_gradient(k, &grad, &sums);
        let (input, weight, sums_before) = saved.block(k, &grad, &norm, k > 0 || need_dx);
        write_gradients(saved, k, &weight, &norm, &mut dparams[4 * k..4 * k + 4]);
        sums = sums_before;
        if k == 0 && need_dx {
            dx = Some(saved.unpack_input(&input));
        }
        let behind = mem::replace(&mut grad, input);
        if keep {
            intermediate_grads.push(behind);
        }
    }
    intermediate_grads.reverse();
    (dx, keep.then_some(IntermediateGrads(intermediate_grads)))
}

pub(super) fn write_gradients(
    saved: &Saved,
    k: usize,
    weight: &[f32],
    norm: &PerBatch<NormGradient>,
    to: &mut [&mut [f32]],
) {
    let plan = &saved.plans[k];
    let (dweight, rest) = to.split_first_mut().expect("a block has four parts");
    plan.block.filter().unpack(saved.body, weight, &plan.forward.taps, dweight);
    plan.round(saved.body, dweight);
    for (batch, norm) in norm.values().iter().enumerate() {
        for (to, from) in rest.iter_mut().zip([&norm.bias, &norm.gamma, &norm.beta]) {
            match batch {
                0 => to.copy_from_slice(from),
                _ => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
            }
        }
    }
}

impl Saved {
    /// The packed weight of block `k`.
    pub(super) fn weights(&self, k: usize) -> &[f32] {
        &self.parameters[k].weight
    }

    /// The gradient of the images, `[n, c, h, w]`.
    pub(super) fn unpack_input(&self, grad: &Images) -> Vec<f32> {
        let map = self.plans[0].input_grad;
        let mut dx = vec![0.0; self.shape.input()];
        let images = dx.par_chunks_exact_mut(map.dense()).enumerate();
        images.for_each(|(n, dx)| map.unpack(self.body, grad.get(n), dx));
        dx
    }
}
