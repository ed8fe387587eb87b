//! The tangent of the forward pass (Jacobian-vector product), given those of the images and the
//! parameters.
//!
//! Every map `a` has a tangent `a'`, and every rule is differentiated: of `y = W * p`, for instance,
//! `y' = W * p' + W' * p`. The largest pixel of a window and the sign that ReLU reads are those at the
//! primal point.
//!
//! Source: Pearlmutter, "Fast exact multiplication by the Hessian", 1994.

use std::ops::Range;

use fewshot_simd::buffers::{Buffer, CowBuffer};
use fewshot_simd::convolution::Term;
use fewshot_simd::images::{Images, Keep};
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::slots::groups;
use rayon::prelude::*;

use super::forward::Saved;
use super::norm::{Norm, Sums};
use super::parameters::Parameters;
use super::per_batch::PerBatch;
use super::plan::Plan;
use super::reduction::Piece;
use super::slot_run::SlotRun;

/// Tangents of what the forward pass saved.
pub struct SavedTangent {
    /// Tangents of the input of every block; that of the first is not stored if the images have none.
    pub(super) inputs: Vec<Images>,
    /// Tangents of the output of every convolution.
    pub(super) convs: Vec<Images>,
    pub(super) norms: Vec<PerBatch<Norm>>,
    /// Tangents of the weights, packed.
    pub(super) weights: Vec<Buffer>,
    /// True if the images have a tangent.
    pub(super) images: bool,
}

/// The tangent of the output `[n, c, h, w]` of the stack, given those of its `images`, of which `None` is
/// zero, and of the parameters of every block, at the point of the forward pass that `saved` comes from;
/// with what [`jvp_of_vjp`](super::jvp_of_vjp()) needs.
///
/// # Panics
/// If a length does not fit the shape of that pass.
pub fn jvp(
    saved: &Saved,
    images: Option<&[f32]>,
    parameters: &[Parameters<'_>],
) -> (Vec<f32>, SavedTangent) {
    let shape = &saved.shape;
    assert_eq!(parameters.len(), saved.plans.len(), "the tangents of {shape:?}");
    if let Some(images) = images {
        assert_eq!(images.len(), shape.input(), "the tangent of the input of {shape:?}");
    }
    let slots = &saved.slots;
    let pairs = saved.plans.iter().zip(parameters);
    let weights: Vec<_> = pairs.map(|(plan, of)| plan.weight(saved.body, of)).collect();
    let stack = Stack {
        saved,
        weights: prepared(saved, saved.parameters.iter().map(|of| &of.weight)),
        weight_tangents: prepared(saved, &weights),
        images,
    };
    let (mut inputs, mut convs) = stack.stores(slots);
    let mut y = vec![0.0; shape.output().iter().product()];
    let mut runs = SlotRun::all(&saved.plans, slots, &mut inputs, &mut convs, &mut y);
    let mut norms: Vec<PerBatch<Norm>> = Vec::new();
    let after_each = parameters.iter().map(Some).chain([None]);
    for (k, tangents) in after_each.enumerate() {
        let group = saved.plans.get(k).map_or(1, |plan| plan.group);
        let parts = runs.par_iter_mut().map(|run| {
            let padded = saved.plans.get(k).map_or(0, Plan::padded);
            let mut sums = saved.per_batch(&run.images, || Sums::empty(padded));
            for group in groups(run.images.len(), group) {
                stack.step(k, group, run, &norms, &mut sums);
            }
            sums
        });
        let sums = PerBatch::total(parts.collect(), Sums::merge);
        if let Some(tangents) = tangents {
            let (pixels, primals) = (saved.pixels(&saved.plans[k]), &saved.parameters[k]);
            norms.push(sums.map(|image, sums| {
                let norm = saved.norms[k].of(image);
                norm.tangent(primals, tangents, sums, pixels)
            }));
        }
    }
    drop((runs, stack));
    (y, SavedTangent { inputs, convs, norms, weights, images: images.is_some() })
}

/// Packed weights of all blocks as their convolutions take them.
fn prepared<'a>(saved: &Saved, packed: impl IntoIterator<Item = &'a Buffer>) -> Vec<CowBuffer<'a>> {
    let pairs = saved.plans.iter().zip(packed);
    pairs.map(|(plan, packed)| plan.forward.prepare(saved.body, packed)).collect()
}

/// The values that all slots share.
struct Stack<'a> {
    saved: &'a Saved,
    weights: Vec<CowBuffer<'a>>,
    weight_tangents: Vec<CowBuffer<'a>>,
    images: Option<&'a [f32]>,
}

impl Stack<'_> {
    fn body(&self) -> &dyn InstructionSet {
        self.saved.body
    }

    /// Room for the tangents of the inputs of all blocks and the output, and of the convolutions.
    fn stores(&self, slots: &[Range<usize>]) -> (Vec<Images>, Vec<Images>) {
        let plans = &self.saved.plans;
        let inputs = Plan::maps(plans).enumerate().map(|(k, map)| {
            let keep = match k {
                0 if self.images.is_none() => Keep::None,
                k if k == plans.len() => Keep::Current(1),
                _ => Keep::All,
            };
            Images::new(slots, map.image(), keep)
        });
        let convs = plans.iter().map(|plan| Images::new(slots, plan.conv.image(), Keep::All));
        (inputs.collect(), convs.collect())
    }

    /// Takes the tangents of a slot's images from the convolution of block `k - 1` to that of block
    /// `k`, and adds to its sums.
    fn step(
        &self,
        k: usize,
        group: Range<usize>,
        run: &mut SlotRun<'_>,
        norms: &[PerBatch<Norm>],
        sums: &mut PerBatch<Sums>,
    ) {
        let plans = &self.saved.plans;
        for i in group.clone() {
            match k {
                0 => match self.images {
                    Some(images) => run.pack_input(self.body(), plans[0].input, i, images),
                    None => continue,
                },
                k => self.activate(k - 1, i, run, norms[k - 1].of(run.images.start + i)),
            }
            if let Some(plan) = plans.get(k) {
                plan.round_maps(self.body(), run.inputs[k].get_mut(i));
            }
        }
        if k == plans.len() {
            return run.unpack_output(self.body(), plans[k - 1].out, group);
        }
        self.convolve(k, group.clone(), run);
        if self.saved.batch_images.is_some() {
            group.for_each(|i| {
                self.correlate(k, i, run, sums.of_mut(run.images.start + i));
            });
        }
    }

    /// The tangent of the output of block `k`.
    fn activate(&self, k: usize, i: usize, run: &mut SlotRun<'_>, norm: &Norm) {
        let plan = &self.saved.plans[k];
        let tangent = run.convs[k].get(i);
        let out = run.inputs[k + 1].get_mut(i);
        plan.out.clear_ring(out);
        for piece in self.saved.pieces(k, run.images.start + i) {
            let Piece { tile, ref rows, .. } = piece;
            let start = plan.out.start(tile, plan.out_rows(rows).0);
            let from = plan.conv.start(tile, rows.start);
            let tangent = &tangent[from..from + rows.len() * plan.conv.row()];
            let strip = self.saved.strip(&piece, &mut run.strip);
            let tangent = plan.affine(tile, tangent, norm);
            self.body().activate_jvp(&strip, &tangent, &mut out[start..], plan.out.row());
        }
    }

    /// The tangents of the convolution of block `k`: `W * p' + W' * p`.
    fn convolve(&self, k: usize, group: Range<usize>, run: &mut SlotRun<'_>) {
        let plan = &self.saved.plans[k];
        let inputs = self.saved.inputs[k]
            .group(run.images.start + group.start..run.images.start + group.end);
        let input_tangents = run.inputs[k].group(group.clone());
        let terms = [
            Term { weight: &self.weight_tangents[k], input: inputs },
            Term { weight: &self.weights[k], input: input_tangents },
        ];
        let terms = if input_tangents.is_empty() { &terms[..1] } else { &terms };
        let outputs = run.convs[k].group_mut(group);
        if run.scratch[k].is_none() {
            run.scratch[k] = plan.forward.scratch(2);
        }
        plan.forward.images(self.body(), terms, outputs, &mut run.scratch[k]);
        plan.round_maps(self.body(), outputs);
    }

    /// Adds the sums of `y'` and of `y' * (y - mean)`.
    fn correlate(&self, k: usize, i: usize, run: &mut SlotRun<'_>, sums: &mut Sums) {
        let (saved, n) = (self.saved, run.images.start + i);
        let tangent = run.convs[k].get(i);
        for piece in saved.pieces(k, n) {
            let strip = saved.strip(&piece, &mut run.strip);
            let tangent = &tangent[saved.plans[k].conv.start(piece.tile, piece.rows.start)..];
            saved.add_products(&piece, [strip.y, tangent], &saved.norms[k].of(n).mean, sums);
        }
    }
}
