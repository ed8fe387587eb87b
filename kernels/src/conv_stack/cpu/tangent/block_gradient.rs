//! Tangents of the gradients of one block.

use std::ops::Range;

use rayon::prelude::*;

use super::super::norm::{NormGradient, Sums};
use super::super::per_batch::PerBatch;
use super::super::plan::Plan;
use super::backward::{Dual, Stack};
use super::norm::TangentSums;
use crate::cpu::activate::Strip;
use crate::cpu::activate_vjp::{Slope, Target};
use crate::cpu::buffers::{Buffer, CowBuffer};
use crate::cpu::convolution::Term;
use crate::cpu::images::{Images, Keep, SlotImages};
use crate::cpu::instruction_set::InstructionSet;
use crate::cpu::moments::Correlation;
use crate::cpu::slots::{groups, sum};
use crate::cpu::winograd::Scratch;

/// Result of one block.
pub(super) struct BlockTangents {
    /// Tangent of the gradient of the block's input, in tiles.
    pub input: Images,
    /// Tangent of the gradient of the weight, packed.
    pub weight: Buffer,
}

/// One slot's images on their way back through one block.
struct SlotRun<'a> {
    images: Range<usize>,
    /// Tangent of the gradient of the block's input.
    input: SlotImages<'a>,
    /// Tangent of the gradient of the weight.
    weight: &'a mut [f32],
    /// Gradients of the convolution's output, for a group of images.
    delta: Buffer,
    delta_tangent: Buffer,
    strip: Buffer,
    part: Buffer,
    scratch: Option<Scratch>,
    turned_scratch: Option<Scratch>,
}

/// One strip of an image.
struct Piece<'a> {
    k: usize,
    /// Which image of the batch.
    n: usize,
    tile: usize,
    rows: &'a Range<usize>,
}

impl Stack<'_> {
    fn body(&self) -> &dyn InstructionSet {
        self.primal.body()
    }

    fn plan(&self, k: usize) -> &Plan {
        &self.primal.saved.plans[k]
    }

    /// The convolution's output with the map that normalises it, and the tangents of both.
    fn strips<'a>(
        &'a self,
        piece: &Piece<'_>,
        weights: &[f32],
        scratch: &'a mut [f32],
    ) -> (Strip<'a>, &'a [f32]) {
        let (saved, plan) = (self.primal.saved, self.plan(piece.k));
        let (input, y) = (saved.inputs[piece.k].get(piece.n), saved.convs[piece.k].get(piece.n));
        let weights = (weights, piece.tile);
        let y = plan.strip(self.body(), weights, (input, y), piece.rows.clone(), scratch);
        let start = plan.conv.start(piece.tile, piece.rows.start);
        let tangent = &self.saved_tangent.convs[piece.k].get(piece.n)[start..start + y.len()];
        (plan.affine(piece.tile, y, saved.norms[piece.k].of(piece.n)), tangent)
    }

    /// The sums over the batch that the gradient of block `k` needs.
    pub fn sums(&self, k: usize, grads: Dual<'_>) -> PerBatch<TangentSums> {
        let plan = self.plan(k);
        let (weights, lane) = (self.primal.weights(k), plan.conv.lane);
        let identity = NormGradient::identity(plan.padded());
        let (norms, tangents) = (&self.primal.saved.norms[k], &self.saved_tangent.norms[k]);
        let parts = self.primal.slots.par_iter().map(|images| {
            let saved = self.primal.saved;
            let mut all = saved.per_batch(images, || TangentSums::empty(plan.padded()));
            let [mut scratch, mut dz] = [(); 2].map(|()| Buffer::stale(plan.strip_len()));
            let mut out = vec![0.0; 2 * lane];
            for n in images.clone() {
                let (means, sums) = ((&norms.of(n).mean, &tangents.of(n).mean), all.of_mut(n));
                for (tile, rows) in plan.pieces() {
                    let piece = Piece { k, n, tile, rows: &rows };
                    let (strip, tangent) = self.strips(&piece, weights, &mut scratch);
                    let (size, row) = ([rows.len(), plan.conv.w], plan.conv.row());
                    let slope = identity.slope(plan.channels(tile));
                    let mut correlate = |value, mean: &[f32], dz: &[f32], to: &mut Sums| {
                        let centre = &mean[tile * lane..];
                        let (value, grad) = ((value, row), (dz, row));
                        let pair = Correlation { value, grad, size, centre, gated: false };
                        self.body().correlate(&pair, &mut out);
                        to.add_tile(tile * lane, &out);
                    };
                    let dz_of = |grad: &Images, dz: &mut [f32]| {
                        let grad = plan.grad_rows(tile, &rows, grad.get(n));
                        let target = Target { d: dz, row, pixel: lane };
                        self.body().activate_vjp(&strip, grad, &slope, target);
                    };
                    dz_of(grads.tangent, &mut dz);
                    correlate(strip.y, means.0, &dz, &mut sums.grad);
                    dz_of(grads.primal, &mut dz);
                    correlate(strip.y, means.0, &dz, &mut sums.primal);
                    correlate(tangent, means.1, &dz, &mut sums.conv);
                }
            }
            all
        });
        PerBatch::total(parts.collect(), TangentSums::merge)
    }

    /// Takes the gradient of block `k`'s output and its tangent to those of its weight and, if
    /// asked, of its input.
    pub fn block(
        &self,
        k: usize,
        grads: Dual<'_>,
        norms: (&PerBatch<NormGradient>, &PerBatch<NormGradient>),
        need_input: bool,
    ) -> BlockTangents {
        let (plan, slots) = (self.plan(k), self.primal.slots);
        let keep = if need_input { Keep::All } else { Keep::None };
        let mut input = Images::new(slots, plan.input_grad.image(), keep);
        let packed = plan.forward.gradient_floats();
        let mut weight = Buffer::stale(packed * slots.len());
        let weights = self.primal.weights(k);
        // The weight for the gradient of the input, and its tangent.
        let turned = need_input.then(|| {
            [weights, &self.saved_tangent.weights[k]]
                .map(|packed| plan.turned_weight(self.body(), packed))
        });
        let parts = weight.par_chunks_exact_mut(packed).zip(input.split(slots)).zip(slots);
        parts.for_each(|((weight, input), images)| {
            let size = plan.group.min(images.len());
            let mut run = SlotRun {
                images: images.clone(),
                input,
                weight,
                delta: plan.deltas(size),
                delta_tangent: plan.deltas(size),
                strip: Buffer::stale(plan.strip_len()),
                part: Buffer::stale(plan.strip_len()),
                scratch: plan.forward.scratch(1),
                turned_scratch: plan.turned.scratch(2),
            };
            for group in groups(images.len(), plan.group) {
                for (place, i) in group.clone().enumerate() {
                    let norms = (norms.0.of(images.start + i), norms.1.of(images.start + i));
                    for (tile, rows) in plan.pieces() {
                        let piece = Piece { k, n: images.start + i, tile, rows: &rows };
                        self.deltas(&piece, place, grads, norms, weights, &mut run);
                    }
                }
                self.weight(k, group.clone(), &mut run);
                if let Some(turned) = &turned {
                    self.input(k, group, turned, &mut run);
                }
            }
        });
        let weight = plan.forward.restore(self.body(), sum(weight, packed));
        BlockTangents { input, weight }
    }

    /// The gradient of the convolution's output and its tangent, for the group's `place`th image.
    fn deltas(
        &self,
        piece: &Piece<'_>,
        place: usize,
        grads: Dual<'_>,
        (norm, norm_tangent): (&NormGradient, &NormGradient),
        weights: &[f32],
        run: &mut SlotRun<'_>,
    ) {
        let Piece { k, n, tile, rows } = *piece;
        let plan = self.plan(k);
        let (lane, channels) = (plan.conv.lane, plan.channels(tile));
        let (strip, tangent) = self.strips(piece, weights, &mut run.strip);
        let start = plan.delta.start(place * plan.delta.tiles() + tile, rows.start);
        let (row, pixel) = (plan.delta.row(), plan.delta.lane);
        let grad = plan.grad_rows(tile, rows, grads.primal.get(n));
        let grad_tangent = plan.grad_rows(tile, rows, grads.tangent.get(n));
        let target = Target { d: &mut run.delta[start..], row, pixel };
        self.body().activate_vjp(&strip, grad, &norm.slope(channels.clone()), target);
        let target = Target { d: &mut run.delta_tangent[start..], row, pixel };
        self.body().activate_vjp(&strip, grad, &norm_tangent.slope(channels.clone()), target);
        let part = Target { d: &mut run.part, row: plan.conv.row(), pixel: lane };
        let zeros = vec![0.0; lane];
        let gain = &norm.gain[channels.clone()];
        let slope = Slope { gain, tilt: &zeros, offset: &zeros };
        self.body().activate_vjp(&strip, grad_tangent, &slope, part);
        let target = Target { d: &mut run.delta_tangent[start..], row, pixel };
        let part = &run.part[..tangent.len()];
        self.body().add_tilted(part, (tangent, &norm.tilt[channels]), strip.w, target);
        for delta in [&mut run.delta, &mut run.delta_tangent] {
            plan.round_delta(self.body(), &mut delta[start..], rows.len());
        }
    }

    /// Adds what a group of images contributes to the tangent of the gradient of the weight:
    /// `p * dy' + p' * dy`.
    fn weight(&self, k: usize, group: Range<usize>, run: &mut SlotRun<'_>) {
        let plan = self.plan(k);
        let images = run.images.start + group.start..run.images.start + group.end;
        let inputs = self.primal.saved.inputs[k].group(images.clone());
        let mut pairs = vec![(inputs, &*run.delta_tangent)];
        if k > 0 || self.saved_tangent.images {
            pairs.push((self.saved_tangent.inputs[k].group(images), &*run.delta));
        }
        for (i, (inputs, deltas)) in pairs.into_iter().enumerate() {
            let weight = (&mut *run.weight, group.start == 0 && i == 0);
            let deltas = (plan.delta, deltas);
            plan.forward.weight(self.body(), inputs, deltas, weight, &mut run.scratch);
        }
    }

    /// The gradient of the input, `W^T dy`, and its tangent, `W^T dy' + W'^T dy`.
    fn input(
        &self,
        k: usize,
        group: Range<usize>,
        [weight, weight_tangent]: &[CowBuffer<'_>; 2],
        run: &mut SlotRun<'_>,
    ) {
        let plan = self.plan(k);
        let len = group.len() * plan.delta.image();
        let by_delta = Term { weight, input: &run.delta_tangent[..len] };
        let by_weight = Term { weight: weight_tangent, input: &run.delta[..len] };
        let out = run.input.group_mut(group);
        plan.turned.images(self.body(), &[by_delta, by_weight], out, &mut run.turned_scratch);
        plan.round_maps(self.body(), out);
    }
}
