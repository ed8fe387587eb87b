//! Forward pass of the stack.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use fewshot_simd::buffers::CowBuffer;
use fewshot_simd::convolution::Term;
use fewshot_simd::images::{Images, Keep};
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::moments::Moments;
use fewshot_simd::slots::{groups, slots};
use rayon::prelude::*;

use super::norm::Norm;
use super::parameters::{Parameters, SavedParameters};
use super::per_batch::PerBatch;
use super::plan::Plan;
use super::shape::StackShape;
use super::slot_run::SlotRun;
use crate::environment::chosen;
use crate::precision::Precision;

/// Settings of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// True if the values that [`backward`](super::backward()) needs are kept.
    pub keep: bool,
    /// The number of passes like it that run at once.
    pub lanes: usize,
    /// Batches of equal size that the images are, one after the other, each with moments of its own.
    pub batches: usize,
}

/// Plans that are kept for the next pass of the same shape: making one takes as long as the passes of
/// a small image through a block.
const PLANS: usize = 16;

/// The layout of the blocks, for any number of passes.
#[derive(Clone)]
pub struct Planned {
    body: &'static dyn InstructionSet,
    shape: StackShape,
    plans: Arc<[Plan]>,
}

impl Planned {
    /// On this processor; operands and results of convolutions are rounded to the precision.
    ///
    /// # Panics
    /// If the shape leaves a block without pixels.
    pub fn new(shape: &StackShape, precision: Precision) -> Self {
        static LATEST: Mutex<Vec<(Precision, Planned)>> = Mutex::new(Vec::new());
        let is = |entry: &(Precision, Self)| entry.0 == precision && entry.1.shape == *shape;
        // Whatever is asked for goes to the end, and the first is the one to go.
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match latest.iter().position(is) {
            Some(place) => latest.remove(place),
            None => (precision, Self::by(chosen(), shape, precision)),
        };
        let planned = entry.1.clone();
        latest.push(entry);
        if latest.len() > PLANS {
            latest.remove(0);
        }
        planned
    }

    /// With a given body.
    pub(super) fn by(
        body: &'static dyn InstructionSet,
        shape: &StackShape,
        precision: Precision,
    ) -> Self {
        let plans = Plan::all(shape, body.tile(), (precision, body.amx())).into();
        Self { body, shape: shape.clone(), plans }
    }
}

/// The result of the forward pass.
pub struct Output {
    /// The output `[n, c, h, w]`.
    pub y: Vec<f32>,
    /// Per block the mean of every batch (with the convolution's bias), then the biased variance of
    /// every batch, `[o]` each; empty for running statistics.
    pub moments: Vec<f32>,
    /// The values that [`backward`](super::backward()) needs, if the pass keeps them.
    pub saved: Option<Saved>,
}

/// Everything the backward pass needs. It can be used more than once.
pub struct Saved {
    pub(super) body: &'static dyn InstructionSet,
    pub(super) shape: StackShape,
    pub(super) plans: Arc<[Plan]>,
    /// Input of every block, then the output of the last.
    pub(super) inputs: Vec<Images>,
    /// Output of every convolution that is not computed again.
    pub(super) convs: Vec<Images>,
    pub(super) norms: Vec<PerBatch<Norm>>,
    pub(super) parameters: Vec<SavedParameters>,
    /// Images of a batch, `None` if statistics do not depend on it.
    pub(super) batch_images: Option<usize>,
    /// The images of every slot.
    pub(super) slots: Vec<Range<usize>>,
}

impl Saved {
    /// Pixels that the statistics of a block were taken from, or `None` if they were given.
    pub(super) fn pixels(&self, plan: &Plan) -> Option<usize> {
        self.batch_images.map(|images| images * plan.conv.h * plan.conv.w)
    }

    /// A value for each batch of these images, where statistics are given of all together.
    pub(super) fn per_batch<T>(&self, images: &Range<usize>, make: impl Fn() -> T) -> PerBatch<T> {
        PerBatch::new(self.batch_images.unwrap_or(self.shape.n), images, make)
    }
}

/// Applies the stack to `x [n, c, h, w]`. What normalises are `given` moments, laid out as
/// [`Output::moments`], or those of the batch.
///
/// # Conventions
/// Like PyTorch, it passes NaN through ReLU and max-pool, and normalises by the biased variance.
///
/// # Panics
/// If a length does not fit the shape that was planned.
pub fn forward(
    planned: &Planned,
    x: &[f32],
    parameters: &[Parameters<'_>],
    (given, epsilon): (Option<&[f32]>, f32),
    Pass { keep, lanes, batches }: Pass,
) -> Output {
    let Planned { body, shape, plans } = planned.clone();
    assert_eq!(x.len(), shape.input(), "the input of {shape:?}");
    assert_eq!(parameters.len(), plans.len(), "the blocks' parameters of {shape:?}");
    assert!(shape.n.is_multiple_of(batches), "{batches} batches of equal size in {shape:?}");
    let batch = given.is_none();
    let batch_images = batch.then_some(shape.n / batches);
    let slots = slots(shape.n, lanes, batches);

    let groups = group_sizes(&plans, batch);
    let (mut inputs, mut convs) = stores(&plans, &slots, &groups, (keep, batch));
    let mut y = vec![0.0; shape.output().iter().product()];

    let pairs = plans.iter().zip(parameters);
    let packed: Vec<_> = pairs.map(|(plan, of)| plan.saved_parameters(body, of)).collect();
    let weights = plans.iter().zip(&packed);
    let weights = weights.map(|(plan, of)| plan.forward.prepare(body, &of.weight)).collect();
    let stack = Stack { body, plans: &plans, weights, x, batch_images, groups };
    let mut runs = SlotRun::all(&plans, &slots, &mut inputs, &mut convs, &mut y);
    let mut moments = Vec::new();
    let norms = match given {
        None => stack.with_batch(&mut runs, parameters, epsilon, &mut moments),
        Some(given) => stack.with_given(&mut runs, parameters, epsilon, given),
    };
    drop((runs, stack));
    let parameters = packed;
    let saved = keep.then(|| Saved {
        body,
        shape,
        plans,
        inputs,
        convs,
        norms,
        parameters,
        batch_images,
        slots,
    });
    Output { y, moments, saved }
}

/// Most images taken through all blocks together: more would not stay in the L3 cache.
const GROUP: usize = 8;

/// The number of images that go together to the convolution of every block, and to the output.
fn group_sizes(plans: &[Plan], batch: bool) -> Vec<usize> {
    let sizes: Vec<usize> = plans.iter().map(|plan| plan.group).chain([1]).collect();
    if batch {
        return sizes;
    }
    // Without a barrier between the blocks, the images stay together.
    let most = sizes.iter().copied().max().unwrap_or(1);
    vec![most.min(GROUP); sizes.len()]
}

/// Room for the inputs of all blocks and the output, and for the outputs of the convolutions.
fn stores(
    plans: &[Plan],
    slots: &[Range<usize>],
    groups: &[usize],
    (keep, batch): (bool, bool),
) -> (Vec<Images>, Vec<Images>) {
    let choose = |all, group| if all { Keep::All } else { Keep::Current(group) };
    let inputs = Plan::maps(plans).zip(groups).enumerate().map(|(k, (map, &group))| {
        // A convolution that is computed again wants its input in the next pass over the batch.
        let again = batch && plans.get(k).is_some_and(|plan| plan.recompute);
        Images::new(slots, map.image(), choose(keep || again, group))
    });
    let convs = plans.iter().zip(groups).map(|(plan, &group)| {
        let layout = choose(keep || batch, group);
        let keep = if plan.recompute { Keep::None } else { layout };
        Images::new(slots, plan.conv.image(), keep)
    });
    (inputs.collect(), convs.collect())
}

/// The values that all slots share.
struct Stack<'a> {
    body: &'a dyn InstructionSet,
    plans: &'a [Plan],
    weights: Vec<CowBuffer<'a>>,
    x: &'a [f32],
    /// Images of a batch, whose moments are wanted; `None` where moments are given.
    batch_images: Option<usize>,
    /// Images taken together to the convolution of every block, and to the output.
    groups: Vec<usize>,
}

impl Stack<'_> {
    /// One pass over the batch for each block: its moments need every image.
    fn with_batch(
        &self,
        runs: &mut [SlotRun<'_>],
        parameters: &[Parameters<'_>],
        epsilon: f32,
        moments: &mut Vec<f32>,
    ) -> Vec<PerBatch<Norm>> {
        let mut norms: Vec<PerBatch<Norm>> = Vec::new();
        for k in 0..=self.plans.len() {
            let padded = self.plans.get(k).map_or(0, Plan::padded);
            let parts = runs.par_iter_mut().map(|run| {
                let mut moments = self.moments(&run.images, padded);
                for group in groups(run.images.len(), self.groups[k]) {
                    self.step(k, group, run, &norms, &mut moments);
                }
                moments
            });
            let parts: Vec<_> = parts.collect();
            let Some(parameters) = parameters.get(k) else {
                break;
            };
            let total = PerBatch::total(parts, Moments::merge);
            for of in total.values() {
                let biases = parameters.bias.iter().enumerate();
                moments.extend(biases.map(|(c, bias)| (of.channel(c).0 + f64::from(*bias)) as f32));
            }
            for of in total.values() {
                moments.extend((0..parameters.bias.len()).map(|c| of.channel(c).1 as f32));
            }
            norms
                .push(total.map(|_, of| Norm::new(parameters, epsilon, padded, |c| of.channel(c))));
        }
        norms
    }

    /// One pass over the batch, an image through all blocks at a time.
    fn with_given(
        &self,
        runs: &mut [SlotRun<'_>],
        parameters: &[Parameters<'_>],
        epsilon: f32,
        mut given: &[f32],
    ) -> Vec<PerBatch<Norm>> {
        let length: usize = parameters.iter().map(|p| 2 * p.bias.len()).sum();
        assert_eq!(given.len(), length, "the running statistics of the stack");
        let images = runs.iter().map(|run| run.images.len()).sum::<usize>();
        let mut norms = Vec::new();
        for (plan, parameters) in self.plans.iter().zip(parameters) {
            let channels = parameters.bias.len();
            let (block, rest) = given.split_at(2 * channels);
            given = rest;
            let moments = |c: usize| {
                let mean = f64::from(block[c]) - f64::from(parameters.bias[c]);
                (mean, f64::from(block[channels + c]))
            };
            let norm = || Norm::new(parameters, epsilon, plan.padded(), moments);
            norms.push(PerBatch::new(images, &(0..images), norm));
        }
        runs.par_iter_mut().for_each(|run| {
            let mut moments = self.moments(&run.images, 0);
            for group in groups(run.images.len(), self.groups[0]) {
                for k in 0..=self.plans.len() {
                    self.step(k, group.clone(), run, &norms, &mut moments);
                }
            }
        });
        norms
    }

    /// No moments yet of each batch of these images, or of all.
    fn moments(&self, images: &Range<usize>, padded: usize) -> PerBatch<Moments> {
        let batch = self.batch_images.unwrap_or(images.end);
        PerBatch::new(batch, images, || Moments::empty(padded))
    }

    /// Takes images of a slot from the convolution of block `k - 1` to that of block `k`.
    fn step(
        &self,
        k: usize,
        group: Range<usize>,
        run: &mut SlotRun<'_>,
        norms: &[PerBatch<Norm>],
        moments: &mut PerBatch<Moments>,
    ) {
        for i in group.clone() {
            match k {
                0 => run.pack_input(self.body, self.plans[0].input, i, self.x),
                k => self.activate(k - 1, i, run, norms[k - 1].of(run.images.start + i)),
            }
            if let Some(plan) = self.plans.get(k) {
                plan.round_maps(self.body, run.inputs[k].get_mut(i));
            }
        }
        let Some(plan) = self.plans.get(k) else {
            return run.unpack_output(self.body, self.plans[k - 1].out, group);
        };
        if !plan.forward.is_direct() || group.len() > 1 && !plan.recompute {
            self.convolve_group(k, group, run, moments);
        } else if self.batch_images.is_some() || !plan.recompute {
            group.for_each(|i| self.convolve(k, i, run, moments));
        }
    }

    /// Convolution of block `k` for images together, and its moments if they are wanted.
    fn convolve_group(
        &self,
        k: usize,
        group: Range<usize>,
        run: &mut SlotRun<'_>,
        moments: &mut PerBatch<Moments>,
    ) {
        let plan = &self.plans[k];
        let start = run.images.start + group.start;
        if run.scratch[k].is_none() {
            run.scratch[k] = plan.forward.scratch(1);
        }
        let term = Term { weight: &self.weights[k], input: run.inputs[k].group(group.clone()) };
        let outputs = run.convs[k].group_mut(group);
        plan.forward.images(self.body, &[term], outputs, &mut run.scratch[k]);
        plan.round_maps(self.body, outputs);
        if self.batch_images.is_some() {
            let mut sums = vec![0.0; 3 * plan.conv.lane];
            for (i, y) in outputs.chunks_exact(plan.conv.plane()).enumerate() {
                self.body.deviations(y, &mut sums);
                let (image, tile) = (i / plan.conv.tiles(), i % plan.conv.tiles());
                let (first, moments) = (tile * plan.conv.lane, moments.of_mut(start + image));
                moments.add_tile(first, plan.conv.h * plan.conv.w, &sums);
            }
        }
    }

    /// Batch-norm, ReLU and max-pool of block `k`.
    fn activate(&self, k: usize, i: usize, run: &mut SlotRun<'_>, norm: &Norm) {
        let plan = &self.plans[k];
        let (before, after) = run.inputs.split_at_mut(k + 1);
        let (input, y) = (before[k].get(i), run.convs[k].get(i));
        let out = after[0].get_mut(i);
        plan.out.clear_ring(out);
        for (tile, rows) in plan.pieces() {
            let start = plan.out.start(tile, plan.out_rows(&rows).0);
            let weights = (&*self.weights[k], tile);
            let y = plan.strip(self.body, weights, (input, y), rows, &mut run.strip);
            let strip = plan.affine(tile, y, norm);
            self.body.activate(&strip, &mut out[start..], plan.out.row());
        }
    }

    /// Convolution of block `k`, and its moments if they are wanted.
    fn convolve(&self, k: usize, i: usize, run: &mut SlotRun<'_>, moments: &mut PerBatch<Moments>) {
        let (plan, n) = (&self.plans[k], run.images.start + i);
        let term = Term { weight: &self.weights[k], input: run.inputs[k].get(i) };
        let y = run.convs[k].get_mut(i);
        let mut sums = vec![0.0; 3 * plan.conv.lane];
        for (tile, rows) in plan.pieces() {
            let (start, len) = (plan.conv.start(tile, rows.start), rows.len());
            let strip = if plan.recompute { &mut *run.strip } else { &mut y[start..] };
            let strip = &mut strip[..len * plan.conv.row()];
            plan.forward.rows(self.body, &[term], tile, rows, strip);
            plan.round_maps(self.body, strip);
            if self.batch_images.is_some() {
                self.body.deviations(strip, &mut sums);
                moments.of_mut(n).add_tile(tile * plan.conv.lane, len * plan.conv.w, &sums);
            }
        }
    }
}
