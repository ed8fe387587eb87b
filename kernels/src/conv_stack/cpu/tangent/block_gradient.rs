//! Tangents of the gradients of one block.

use std::ops::Range;

use rayon::prelude::*;

use super::super::block_gradient::SlotGradients;
use super::super::norm::{NormGradient, Sums};
use super::super::per_batch::PerBatch;
use super::super::plan::Plan;
use super::backward::{Dual, Stack};
use super::norm::TangentSums;
use crate::cpu::activate::Strip;
use crate::cpu::activate_vjp::{Slope, Target};
use crate::cpu::buffers::{Buffer, CowBuffer};
use crate::cpu::convolution::Term;
use crate::cpu::images::Images;
use crate::cpu::moments::Correlation;
use crate::cpu::slots::groups;

/// What the tangents of the gradients of one slot's images are computed with.
struct SlotRun<'a> {
    gradients: SlotGradients<'a>,
    /// Gradients of the convolution's output, for a group of images.
    delta: Buffer,
    delta_tangent: Buffer,
    part: Buffer,
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
    fn plan(&self, k: usize) -> &Plan {
        &self.saved.plans[k]
    }

    /// The convolution's output with the map that normalises it, and the tangents of both.
    fn strips<'a>(
        &'a self,
        piece: &Piece<'_>,
        weights: &[f32],
        scratch: &'a mut [f32],
    ) -> (Strip<'a>, &'a [f32]) {
        let (saved, plan) = (self.saved, self.plan(piece.k));
        let (input, y) = (saved.inputs[piece.k].get(piece.n), saved.convs[piece.k].get(piece.n));
        let weights = (weights, piece.tile);
        let y = plan.strip(self.saved.body, weights, (input, y), piece.rows.clone(), scratch);
        let start = plan.conv.start(piece.tile, piece.rows.start);
        let tangent = &self.saved_tangent.convs[piece.k].get(piece.n)[start..start + y.len()];
        (plan.affine(piece.tile, y, saved.norms[piece.k].of(piece.n)), tangent)
    }

    /// The sums over the batch that the gradient of block `k` needs.
    pub fn sums(&self, k: usize, grads: Dual<'_>) -> PerBatch<TangentSums> {
        let plan = self.plan(k);
        let (weights, lane) = (self.saved.weights(k), plan.conv.lane);
        let identity = NormGradient::identity(plan.padded());
        let (norms, tangents) = (&self.saved.norms[k], &self.saved_tangent.norms[k]);
        let parts = self.saved.slots.par_iter().map(|images| {
            let saved = self.saved;
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
                        self.saved.body.correlate(&pair, &mut out);
                        to.add_tile(tile * lane, &out);
                    };
                    let dz_of = |grad: &Images, dz: &mut [f32]| {
                        let grad = plan.grad_rows(tile, &rows, grad.get(n));
                        let target = Target { d: dz, row, pixel: lane };
                        self.saved.body.activate_vjp(&strip, grad, &slope, target);
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

    /// Takes the gradient of block `k`'s output and its tangent to the tangents of the gradients of its
    /// input, if asked, and of its weight, in tiles and packed.
    pub fn block(
        &self,
        k: usize,
        grads: Dual<'_>,
        norms: (&PerBatch<NormGradient>, &PerBatch<NormGradient>),
        need_input: bool,
    ) -> (Images, Buffer) {
        let (plan, weights) = (self.plan(k), self.saved.weights(k));
        // The weight for the gradient of the input, and its tangent.
        let turned = need_input.then(|| {
            [weights, &self.saved_tangent.weights[k]]
                .map(|packed| plan.turned_weight(self.saved.body, packed))
        });
        let terms = if need_input { 2 } else { 0 };
        let (input, weight, _) = self.saved.slot_gradients(k, terms, |gradients| {
            let images = gradients.images.clone();
            let [delta, delta_tangent] =
                [(); 2].map(|()| plan.deltas(plan.group.min(images.len())));
            let part = Buffer::stale(plan.strip_len());
            let mut run = SlotRun { gradients, delta, delta_tangent, part };
            for group in groups(images.len(), plan.group) {
                for (place, i) in group.clone().enumerate() {
                    let norms = (norms.0.of(images.start + i), norms.1.of(images.start + i));
                    for (tile, rows) in plan.pieces() {
                        let piece = Piece { k, n: images.start + i, tile, rows: &rows };
                        self.deltas(&piece, place, grads, norms, weights, &mut run);
                    }
                }
                self.group(k, group, turned.as_ref(), &mut run);
            }
        });
        (input, weight)
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
        let (strip, tangent) = self.strips(piece, weights, &mut run.gradients.strip);
        let start = plan.delta.start(place * plan.delta.tiles() + tile, rows.start);
        let (row, pixel) = (plan.delta.row(), plan.delta.lane);
        let grad = plan.grad_rows(tile, rows, grads.primal.get(n));
        let grad_tangent = plan.grad_rows(tile, rows, grads.tangent.get(n));
        let target = Target { d: &mut run.delta[start..], row, pixel };
        self.saved.body.activate_vjp(&strip, grad, &norm.slope(channels.clone()), target);
        let target = Target { d: &mut run.delta_tangent[start..], row, pixel };
        self.saved.body.activate_vjp(&strip, grad, &norm_tangent.slope(channels.clone()), target);
        let part = Target { d: &mut run.part, row: plan.conv.row(), pixel: lane };
        let zeros = vec![0.0; lane];
        let gain = &norm.gain[channels.clone()];
        let slope = Slope { gain, tilt: &zeros, offset: &zeros };
        self.saved.body.activate_vjp(&strip, grad_tangent, &slope, part);
        let target = Target { d: &mut run.delta_tangent[start..], row, pixel };
        let part = &run.part[..tangent.len()];
        self.saved.body.add_tilted(part, (tangent, &norm.tilt[channels]), strip.w, target);
        for delta in [&mut run.delta, &mut run.delta_tangent] {
            plan.round_delta(self.saved.body, &mut delta[start..], rows.len());
        }
    }

    /// The tangents of the gradients of a group of images: of the weight `p * dy' + p' * dy`, and of the
    /// input `W^T dy' + W'^T dy`.
    fn group(
        &self,
        k: usize,
        group: Range<usize>,
        turned: Option<&[CowBuffer<'_>; 2]>,
        run: &mut SlotRun<'_>,
    ) {
        let start = run.gradients.images.start;
        let images = start + group.start..start + group.end;
        let moves = k > 0 || self.saved_tangent.images;
        let by_delta = [self.saved.inputs[k].group(images.clone()), &*run.delta_tangent];
        let by_input = moves.then(|| [self.saved_tangent.inputs[k].group(images), &*run.delta]);
        let pairs: Vec<_> = [by_delta].into_iter().chain(by_input).collect();
        let len = group.len() * self.plan(k).delta.image();
        let terms = turned.map(|[weight, weight_tangent]| {
            let by_delta = Term { weight, input: &run.delta_tangent[..len] };
            [by_delta, Term { weight: weight_tangent, input: &run.delta[..len] }]
        });
        self.saved.add_group(k, group, &pairs, terms.as_slice().as_flattened(), &mut run.gradients);
    }
}
