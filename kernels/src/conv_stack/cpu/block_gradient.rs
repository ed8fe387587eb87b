//! Gradients of one block, from its output to its weight and its input.

use std::ops::Range;

use rayon::prelude::*;

use super::backward::Stack;
use super::norm::{NormGradient, Sums};
use super::per_batch::PerBatch;
use crate::cpu::activate_vjp::Target;
use crate::cpu::buffers::Buffer;
use crate::cpu::convolution::Term;
use crate::cpu::images::{Images, Keep, SlotImages};
use crate::cpu::slots::{groups, sum};
use crate::cpu::winograd::Scratch;

/// Result of one block.
pub struct BlockGradients {
    /// Of the block's input, in tiles.
    pub input: Images,
    /// Of the weight, packed.
    pub weight: Buffer,
    /// Sums over the batch for the block before.
    pub sums: PerBatch<Sums>,
}

/// One slot's images on their way back through one block.
struct SlotRun<'a> {
    images: Range<usize>,
    /// Gradient of the block's input.
    input: SlotImages<'a>,
    /// Gradient of the weight.
    weight: &'a mut [f32],
    /// Gradient of the convolution's output.
    delta: Buffer,
    /// Whether `delta` holds a group of whole images, not one channel tile.
    whole: bool,
    strip: Buffer,
    scratch: Option<Scratch>,
    turned_scratch: Option<Scratch>,
    sums: PerBatch<Sums>,
}

impl Stack<'_> {
    /// Takes the gradient of block `k`'s output to its weight and, if asked, to its input.
    pub fn block(
        &self,
        k: usize,
        grad: &Images,
        norm: &PerBatch<NormGradient>,
        need_input: bool,
    ) -> BlockGradients {
        let plan = &self.saved.plans[k];
        let keep = if need_input { Keep::All } else { Keep::None };
        let mut input = Images::new(self.slots, plan.input_grad.image(), keep);
        let packed = plan.forward.gradient_floats();
        let mut weight = Buffer::stale(packed * self.slots.len());
        let weights = self.weights(k);
        let turned = need_input.then(|| plan.turned_weight(self.body(), weights));
        let parts = weight.par_chunks_exact_mut(packed).zip(input.split(self.slots));
        let sums = parts.zip(self.slots).map(|((weight, input), images)| {
            let mut run = self.slot_run(k, images.clone(), input, weight, need_input);
            for group in groups(images.len(), plan.group) {
                for (place, i) in group.clone().enumerate() {
                    let grad = grad.get(images.start + i);
                    self.delta(k, (place, i), grad, norm, weights, &mut run);
                }
                self.group(k, group, turned.as_deref(), &mut run);
            }
            run.sums
        });
        let sums = PerBatch::total(sums.collect(), Sums::merge);
        let weight = plan.forward.restore(self.body(), sum(weight, packed));
        BlockGradients { input, weight, sums }
    }

    fn slot_run<'a>(
        &self,
        k: usize,
        images: Range<usize>,
        input: SlotImages<'a>,
        weight: &'a mut [f32],
        need_input: bool,
    ) -> SlotRun<'a> {
        let plan = &self.saved.plans[k];
        let whole = need_input || !plan.forward.is_direct();
        // A direct gradient of the weight alone takes one channel tile after the other.
        let delta = if whole {
            plan.deltas(plan.group.min(images.len()))
        } else {
            Buffer::stale(plan.delta.plane())
        };
        let padded = if k > 0 { self.saved.plans[k - 1].padded() } else { 0 };
        let sums = self.saved.per_batch(&images, || Sums::empty(padded));
        SlotRun {
            images,
            input,
            weight,
            delta,
            whole,
            strip: Buffer::stale(plan.strip_len()),
            scratch: plan.forward.scratch(1),
            turned_scratch: plan.turned.scratch(1).filter(|_| need_input),
            sums,
        }
    }

    /// What a group of images of a slot, whose gradients of the convolution's output are there,
    /// adds to the gradient of the weight, and their gradients of the input.
    fn group(&self, k: usize, group: Range<usize>, turned: Option<&[f32]>, run: &mut SlotRun<'_>) {
        let plan = &self.saved.plans[k];
        let images = run.images.start + group.start..run.images.start + group.end;
        let inputs = self.saved.inputs[k].group(images.clone());
        let weight = (&mut *run.weight, group.start == 0);
        if run.whole {
            let deltas = (plan.delta, &*run.delta);
            plan.forward.weight(self.body(), inputs, deltas, weight, &mut run.scratch);
        }
        let Some(turned) = turned else { return };
        let deltas = &run.delta[..group.len() * plan.delta.image()];
        let grads = run.input.group_mut(group);
        let term = Term { weight: turned, input: deltas };
        plan.turned.images(self.body(), &[term], grads, &mut run.turned_scratch);
        plan.round_maps(self.body(), grads);
        if k > 0 {
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
        grad: &[f32],
        norm: &PerBatch<NormGradient>,
        weights: &[f32],
        run: &mut SlotRun<'_>,
    ) {
        let (plan, n) = (&self.saved.plans[k], run.images.start + i);
        let (input, y) = (self.saved.inputs[k].get(n), self.saved.convs[k].get(n));
        let packed = plan.forward.tile_floats();
        let (affine, norm) = (self.saved.norms[k].of(n), norm.of(n));
        for (tile, rows) in plan.pieces() {
            let plane = if run.whole { place * plan.delta.tiles() + tile } else { 0 };
            let of = (weights, tile);
            let y = plan.strip(self.body(), of, (input, y), rows.clone(), &mut run.strip);
            let strip = plan.affine(tile, y, affine);
            let grad = plan.grad_rows(tile, &rows, grad);
            let delta = &mut run.delta[plan.delta.start(plane, rows.start)..];
            let (row, pixel) = (plan.delta.row(), plan.delta.lane);
            let target = Target { d: &mut *delta, row, pixel };
            self.body().activate_vjp(&strip, grad, &norm.slope(plan.channels(tile)), target);
            plan.round_delta(self.body(), delta, rows.len());
            if run.whole {
                continue;
            }
            let input = &input[rows.start * plan.block.stride * plan.input.row()..];
            let weight = &mut run.weight[tile * packed..(tile + 1) * packed];
            let weight = (weight, i == 0 && rows.start == 0);
            let deltas = (plan.delta, &*delta);
            plan.forward.weight_rows(self.body(), input, deltas, (1, rows.len()), weight);
        }
    }
}
