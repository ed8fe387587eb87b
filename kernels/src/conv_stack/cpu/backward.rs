//! Backward pass: from the gradient of the output to those of the parameters and the input.

use std::mem;
use std::ops::Range;

use fewshot_simd::buffers::Buffer;
use fewshot_simd::convolution::Term;
use fewshot_simd::images::{Images, Keep, SlotImages};
use fewshot_simd::slots::{groups, sum};
use fewshot_simd::winograd::Scratch;
use rayon::prelude::*;

use super::forward::Saved;
use super::norm::{NormGradient, Sums};
use super::per_batch::PerBatch;
use super::reduction::{Piece, target};

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
/// If a length does not fit the shape of the forward pass.
pub fn backward(
    saved: &Saved,
    dy: &[f32],
    (need_dx, keep): (bool, bool),
    dparams: &mut [&mut [f32]],
) -> (Option<Vec<f32>>, Option<IntermediateGrads>) {
    let shape = &saved.shape;
    let length: usize = shape.output().iter().product();
    assert_eq!(dy.len(), length, "the gradient of the output of {shape:?}");
    let count = saved.plans.len();
    assert_eq!(dparams.len(), 4 * count, "the parts of the gradients of {shape:?}");

    let (mut grad, mut sums) = saved.start(dy);
    let (mut dx, mut intermediate_grads) = (None, Vec::with_capacity(count));
    for k in (0..count).rev() {
        let norm = saved.norm_gradient(k, &grad, &sums);
        let (input, weight, sums_before) = saved.block(k, &grad, &norm, k > 0 || need_dx);
        write_gradients(saved, k, &weight, norm.values(), &mut dparams[4 * k..4 * k + 4]);
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

pub(super) fn write_gradients<'a>(
    saved: &Saved,
    k: usize,
    weight: &[f32],
    norms: impl IntoIterator<Item = &'a NormGradient>,
    to: &mut [&mut [f32]],
) {
    let plan = &saved.plans[k];
    let (dweight, rest) = to.split_first_mut().expect("a block has four parts");
    plan.block.filter().unpack(saved.body, weight, &plan.forward.taps, dweight);
    plan.round(saved.body, dweight);
    for (batch, norm) in norms.into_iter().enumerate() {
        for (to, from) in rest.iter_mut().zip([&norm.bias, &norm.gamma, &norm.beta]) {
            match batch {
                0 => to.copy_from_slice(from),
                _ => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
            }
        }
    }
}

/// One slot's images on their way back through one block.
pub struct SlotGradients<'a> {
    pub images: Range<usize>,
    /// Gradient of the block's input.
    input: SlotImages<'a>,
    /// Gradient of the weight.
    weight: &'a mut [f32],
    pub strip: Buffer,
    scratch: Option<Scratch>,
    turned_scratch: Option<Scratch>,
}

/// The values from which the gradients of one slot's images are computed.
struct SlotRun<'a> {
    gradients: SlotGradients<'a>,
    /// Gradient of the convolution's output.
    delta: Buffer,
    /// True if `delta` holds a group of whole images, not one channel tile.
    whole: bool,
    sums: PerBatch<Sums>,
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

    /// The gradients of block `k`'s input in tiles, of so many `terms` if there are any, and of its weight,
    /// packed, which `run` takes every slot's images to; with what that returns.
    pub(super) fn slot_gradients<T: Send>(
        &self,
        k: usize,
        terms: usize,
        run: impl Fn(SlotGradients<'_>) -> T + Send + Sync,
    ) -> (Images, Buffer, Vec<T>) {
        let plan = &self.plans[k];
        let keep = if terms > 0 { Keep::All } else { Keep::None };
        let mut input = Images::new(&self.slots, plan.input_grad.image(), keep);
        let packed = plan.forward.gradient_floats();
        let mut weight = Buffer::stale(packed * self.slots.len());
        let parts = weight.par_chunks_exact_mut(packed).zip(input.split(&self.slots));
        let rest = parts.zip(&self.slots).map(|((weight, input), images)| {
            run(SlotGradients {
                images: images.clone(),
                input,
                weight,
                strip: Buffer::stale(plan.strip_len()),
                scratch: plan.forward.scratch(1),
                turned_scratch: (terms > 0).then(|| plan.turned.scratch(terms)).flatten(),
            })
        });
        let rest = rest.collect();
        let weight = plan.forward.restore(self.body, sum(weight, packed));
        (input, weight, rest)
    }

    /// Adds the products of `pairs`, inputs and gradients of the convolution's output of a group of
    /// images, to the gradient of the weight, and writes the sum of `terms`, if there are any, to the
    /// gradients of the input, which it returns.
    pub(super) fn add_group<'a>(
        &self,
        k: usize,
        group: Range<usize>,
        pairs: &[[&[f32]; 2]],
        terms: &[Term<'_>],
        to: &'a mut SlotGradients<'_>,
    ) -> Option<&'a [f32]> {
        let plan = &self.plans[k];
        for (i, &[inputs, deltas]) in pairs.iter().enumerate() {
            let weight = (&mut *to.weight, group.start == 0 && i == 0);
            plan.forward.weight(self.body, inputs, (plan.delta, deltas), weight, &mut to.scratch);
        }
        if terms.is_empty() {
            return None;
        }
        let grads = to.input.group_mut(group);
        plan.turned.images(self.body, terms, grads, &mut to.turned_scratch);
        plan.round_maps(self.body, grads);
        Some(grads)
    }

    /// Takes the gradient of block `k`'s output to its input, if asked, and to its weight, as
    /// [`slot_gradients`](Self::slot_gradients); with the sums over the batch for the block before.
    pub(super) fn block(
        &self,
        k: usize,
        grad: &Images,
        norm: &PerBatch<NormGradient>,
        need_input: bool,
    ) -> (Images, Buffer, PerBatch<Sums>) {
        let plan = &self.plans[k];
        let turned = need_input.then(|| plan.turned_weight(self.body, self.weights(k)));
        let terms = usize::from(need_input);
        let (input, weight, sums) = self.slot_gradients(k, terms, |gradients| {
            let mut run = self.slot_run(k, gradients, need_input);
            let images = run.gradients.images.clone();
            for group in groups(images.len(), plan.group) {
                for at in group.clone().enumerate() {
                    self.delta(k, at, grad, norm, &mut run);
                }
                self.group(k, group, turned.as_deref(), &mut run);
            }
            run.sums
        });
        (input, weight, PerBatch::total(sums, Sums::merge))
    }

    fn slot_run<'a>(
        &self,
        k: usize,
        gradients: SlotGradients<'a>,
        need_input: bool,
    ) -> SlotRun<'a> {
        let plan = &self.plans[k];
        let whole = need_input || !plan.forward.is_direct();
        // A direct gradient of the weight alone takes one channel tile after the other.
        let delta = if whole {
            plan.deltas(plan.group.min(gradients.images.len()))
        } else {
            Buffer::stale(plan.delta.plane())
        };
        let padded = if k > 0 { self.plans[k - 1].padded() } else { 0 };
        let sums = self.per_batch(&gradients.images, || Sums::empty(padded));
        SlotRun { gradients, delta, whole, sums }
    }

    /// The share of a group of images of a slot, whose gradients of the convolution's output are there,
    /// in the gradient of the weight, and their gradients of the input.
    fn group(&self, k: usize, group: Range<usize>, turned: Option<&[f32]>, run: &mut SlotRun<'_>) {
        let start = run.gradients.images.start;
        let images = start + group.start..start + group.end;
        let plan = &self.plans[k];
        let pair = run.whole.then(|| [self.inputs[k].group(images.clone()), &*run.delta]);
        let len = group.len() * plan.delta.image();
        let term = turned.map(|weight| Term { weight, input: &run.delta[..len] });
        let grads = self.add_group(k, group, pair.as_slice(), term.as_slice(), &mut run.gradients);
        if let Some(grads) = grads.filter(|_| k > 0) {
            for (n, grad) in images.zip(grads.chunks_exact(plan.input_grad.image())) {
                self.correlate(k - 1, n, grad, &mut run.sums);
            }
        }
    }

    /// Gradient of the convolution's output for image `i` of a slot, the group's `place`th, and what
    /// it adds to the gradient of the weight if that is all there is to find.
    fn delta(
        &self,
        k: usize,
        (place, i): (usize, usize),
        grad: &Images,
        norm: &PerBatch<NormGradient>,
        run: &mut SlotRun<'_>,
    ) {
        let (plan, n) = (&self.plans[k], run.gradients.images.start + i);
        let packed = plan.forward.tile_floats();
        for piece in self.pieces(k, n) {
            let Piece { tile, ref rows, .. } = piece;
            let plane = if run.whole { place * plan.delta.tiles() + tile } else { 0 };
            let strip = self.strip(&piece, &mut run.gradients.strip);
            let coefficients = norm.of(n).coefficients(plan.channels(tile));
            let delta = &mut run.delta[plan.delta.start(plane, rows.start)..];
            self.activate_vjp(&piece, &strip, grad, &coefficients, target(&plan.delta, delta));
            plan.round_delta(self.body, delta, rows.len());
            if run.whole {
                continue;
            }
            let input = self.inputs[k].get(n);
            let input = &input[rows.start * plan.block.stride * plan.input.row()..];
            let weight = &mut run.gradients.weight[tile * packed..(tile + 1) * packed];
            let weight = (weight, i == 0 && rows.start == 0);
            let deltas = (plan.delta, &*delta);
            plan.forward.weight_rows(self.body, input, deltas, (1, rows.len()), weight);
        }
    }
}
