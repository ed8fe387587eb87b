//! Tangents of the gradients, by the rules of [`jvp`](super::jvp()).

use std::borrow::Cow;
use std::ops::Range;

use fewshot_simd::activate_vjp::Coefficients;
use fewshot_simd::buffers::{Buffer, CowBuffer};
use fewshot_simd::convolution::Term;
use fewshot_simd::images::Images;
use fewshot_simd::slots::groups;

use super::backward::{IntermediateGrads, SlotGradients, write_gradients};
use super::forward::Saved;
use super::jvp::SavedTangent;
use super::norm::{NormGradient, TangentSums};
use super::per_batch::PerBatch;
use super::plan::Plan;
use super::reduction::{NONE, Piece, target};

/// The tangents of the gradients of the input and the parameters, where `dy_tangent [n, c, h, w]` is
/// that of the gradient of the output; `None` is zero.
///
/// `saved_tangent` is what [`jvp`](super::jvp()) saved at the point of `saved`, `intermediate_grads` are
/// those of [`backward`](super::backward()) there. The result is returned as by that.
///
/// # Panics
/// If a length does not fit the shape of that pass.
pub fn jvp_of_vjp(
    saved: &Saved,
    saved_tangent: &SavedTangent,
    (intermediate_grads, dy_tangent): (&IntermediateGrads, Option<&[f32]>),
    need_dx: bool,
    dparams: &mut [&mut [f32]],
) -> Option<Vec<f32>> {
    let shape = &saved.shape;
    let length: usize = shape.output().iter().product();
    if let Some(dy) = dy_tangent {
        assert_eq!(dy.len(), length, "the tangent of the gradient of the output of {shape:?}");
    }
    let parts = 4 * saved.plans.len();
    assert_eq!(dparams.len(), parts, "the parts of the gradients of {shape:?}");
    let stack = Stack { saved, saved_tangent };

    let dy_tangent = dy_tangent.map_or_else(|| vec![0.0; length].into(), Cow::from);
    let (mut grad_tangent, _) = saved.pack_output(&dy_tangent, |_| (), |_, _, ()| ());
    let mut dx = None;
    for (k, primal) in intermediate_grads.0.iter().enumerate().rev() {
        let pixels = saved.pixels(&saved.plans[k]);
        let grads = Dual { primal, tangent: &grad_tangent };
        let norms = stack.sums(k, grads).map(|image, sums| {
            let norms = (saved.norms[k].of(image), saved_tangent.norms[k].of(image));
            sums.gradients(norms, &saved.parameters[k], pixels)
        });
        let (input, weight) = stack.block(k, grads, &norms, k > 0 || need_dx);
        let tangents = norms.values().iter().map(|(_, tangent)| tangent);
        write_gradients(saved, k, &weight, tangents, &mut dparams[4 * k..4 * k + 4]);
        grad_tangent = input;
        if k == 0 && need_dx {
            dx = Some(saved.unpack_input(&grad_tangent));
        }
    }
    dx
}

/// A map and its tangent, a dual number for each pixel.
#[derive(Clone, Copy)]
struct Dual<'a> {
    primal: &'a Images,
    tangent: &'a Images,
}

/// The values that all slots share.
struct Stack<'a> {
    saved: &'a Saved,
    saved_tangent: &'a SavedTangent,
}

/// The values from which the tangents of the gradients of one slot's images are computed.
struct SlotRun<'a> {
    gradients: SlotGradients<'a>,
    /// Gradients of the convolution's output, for a group of images.
    delta: Buffer,
    delta_tangent: Buffer,
    part: Buffer,
}

impl Stack<'_> {
    fn plan(&self, k: usize) -> &Plan {
        &self.saved.plans[k]
    }

    /// The tangent of a strip of the convolution's output.
    fn strip_tangent(&self, piece: &Piece) -> &[f32] {
        let (conv, rows) = (self.plan(piece.k).conv, &piece.rows);
        let start = conv.start(piece.tile, rows.start);
        &self.saved_tangent.convs[piece.k].get(piece.n)[start..start + rows.len() * conv.row()]
    }

    /// The sums over the batch that the gradient of block `k` needs.
    fn sums(&self, k: usize, grads: Dual<'_>) -> PerBatch<TangentSums> {
        let saved = self.saved;
        let (norms, tangents) = (&saved.norms[k], &self.saved_tangent.norms[k]);
        saved.over_strips(k, TangentSums::empty, TangentSums::merge, |piece, strip, dz, sums| {
            let [mean, mean_tangent] = [norms, tangents].map(|of| &*of.of(piece.n).mean);
            saved.dz(piece, strip, grads.tangent, dz);
            saved.add_products(piece, [strip.y, dz], mean, &mut sums.grad);
            saved.dz(piece, strip, grads.primal, dz);
            saved.add_products(piece, [strip.y, dz], mean, &mut sums.primal);
            let tangent = self.strip_tangent(piece);
            saved.add_products(piece, [tangent, dz], mean_tangent, &mut sums.conv);
        })
    }

    /// Takes the gradient of block `k`'s output and its tangent to the tangents of the gradients of its
    /// input, if asked, and of its weight, in tiles and packed.
    fn block(
        &self,
        k: usize,
        grads: Dual<'_>,
        norms: &PerBatch<(NormGradient, NormGradient)>,
        need_input: bool,
    ) -> (Images, Buffer) {
        let plan = self.plan(k);
        // The weight for the gradient of the input, and its tangent.
        let turned = need_input.then(|| {
            [self.saved.weights(k), &self.saved_tangent.weights[k]]
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
                    let n = images.start + i;
                    for piece in self.saved.pieces(k, n) {
                        self.deltas(&piece, place, grads, norms.of(n), &mut run);
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
        piece: &Piece,
        place: usize,
        grads: Dual<'_>,
        (norm, norm_tangent): &(NormGradient, NormGradient),
        run: &mut SlotRun<'_>,
    ) {
        let Piece { k, tile, ref rows, .. } = *piece;
        let (saved, plan, channels) = (self.saved, self.plan(k), self.plan(k).channels(tile));
        let strip = saved.strip(piece, &mut run.gradients.strip);
        let start = plan.delta.start(place * plan.delta.tiles() + tile, rows.start);
        let to = target(&plan.delta, &mut run.delta[start..]);
        saved.activate_vjp(piece, &strip, grads.primal, &norm.coefficients(channels.clone()), to);
        let to = target(&plan.delta, &mut run.delta_tangent[start..]);
        let coefficients = norm_tangent.coefficients(channels.clone());
        saved.activate_vjp(piece, &strip, grads.primal, &coefficients, to);
        let gain = &norm.gain[channels.clone()];
        let coefficients = Coefficients { gain, slope: NONE, offset: NONE };
        let part = target(&plan.conv, &mut run.part);
        saved.activate_vjp(piece, &strip, grads.tangent, &coefficients, part);
        let tangent = self.strip_tangent(piece);
        let (part, scaled) = (&run.part[..tangent.len()], (tangent, &norm.slope[channels]));
        let to = target(&plan.delta, &mut run.delta_tangent[start..]);
        saved.body.add_scaled(part, scaled, strip.w, to);
        for delta in [&mut run.delta, &mut run.delta_tangent] {
            plan.round_delta(saved.body, &mut delta[start..], rows.len());
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
