//! The stack against its reference, and its laws.

mod bf16;
mod memory;
mod not_finite;
mod poison;
mod reference;
mod tangent;
mod threads;

use std::ops::Range;

use fewshot_simd::instruction_set::{InstructionSet, bodies};

use super::forward::{Output, Pass, Planned, Saved, forward};
use super::parameters::Parameters;
use super::shape::{BlockShape, StackShape};
use crate::noise::Noise;
use crate::precision::Precision;
use reference::{Reference, reference, stack};

const EPSILON: f32 = 1e-5;

fn noise(len: usize, seed: u64) -> Vec<f32> {
    Noise::new(seed).values(len)
}

/// Flat parameters, or tangents of them, by block.
fn parameters<'a>(shape: &StackShape, mut flat: &'a [f32]) -> Vec<Parameters<'a>> {
    let take = |len| flat.split_off(..len).expect("as long as the parameters");
    Parameters::from_parts(lengths(shape).map(take))
}

/// Lengths of the parts of flat parameters: weight, bias, gamma and beta of every block.
fn lengths(shape: &StackShape) -> impl Iterator<Item = usize> {
    shape.geometry().into_iter().flat_map(|g| [g.weight(), g.c_out, g.c_out, g.c_out])
}

/// Name and place of the gradient of every part of flat parameters.
fn named_parts(shape: &StackShape) -> impl Iterator<Item = (String, Range<usize>)> {
    let mut end = 0;
    lengths(shape).enumerate().map(move |(index, length)| {
        end += length;
        let part = ["weight", "bias", "gamma", "beta"][index % 4];
        (format!("d{part} of block {}", index / 4), end - length..end)
    })
}

/// The parts of flat parameters.
pub(super) fn parts<'a>(shape: &StackShape, mut flat: &'a mut [f32]) -> Vec<&'a mut [f32]> {
    let take = |len| flat.split_off_mut(..len).expect("as long as the parameters");
    lengths(shape).map(take).collect()
}

/// Gradients of the stack.
struct Gradients {
    /// Of the input `[n, c, h, w]`, if it was asked for.
    dx: Option<Vec<f32>>,
    /// Of the parameters, laid out as they are.
    dparams: Vec<f32>,
}

/// The gradients of a pass, in memory that shows what was not written.
fn backward(shape: &StackShape, saved: &Saved, dy: &[f32], need_dx: bool) -> Gradients {
    let mut dparams = vec![f32::NAN; lengths(shape).sum()];
    let parts = &mut parts(shape, &mut dparams);
    let (dx, _) = super::backward::backward(saved, dy, (need_dx, false), parts);
    Gradients { dx, dparams }
}

/// Inputs of one case.
#[derive(Clone)]
struct Case {
    shape: StackShape,
    x: Vec<f32>,
    params: Vec<f32>,
    running: Option<Vec<f32>>,
    dy: Vec<f32>,
    /// Lanes said to run at once.
    lanes: usize,
    precision: Precision,
}

impl Case {
    fn new(shape: StackShape) -> Self {
        let mut params = Vec::new();
        for (k, g) in shape.geometry().iter().enumerate() {
            let scale = 1.0 / (3.0 * g.c_in as f32).sqrt();
            params.extend(noise(g.weight(), 10 + k as u64).iter().map(|v| v * scale));
            params.extend(noise(g.c_out, 20));
            params.extend(noise(g.c_out, 30).iter().map(|v| 1.0 + 0.5 * v));
            params.extend(noise(g.c_out, 40).iter().map(|v| 0.3 * v));
        }
        let (x, dy) = (noise(shape.input(), 1), noise(shape.output().iter().product(), 2));
        Self { shape, x, params, running: None, dy, lanes: 1, precision: Precision::F32 }
    }

    /// With given statistics instead of the batch's.
    fn running(mut self) -> Self {
        let mut running = Vec::new();
        for block in &self.shape.blocks {
            running.extend(noise(block.channels_out, 50));
            running.extend(noise(block.channels_out, 60).iter().map(|v| 1.0 + 0.5 * v));
        }
        self.running = Some(running);
        self
    }

    /// As one of so many lanes that run at once.
    fn in_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    fn in_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets gamma and beta of every block.
    fn affine(mut self, gamma: impl Fn(usize) -> f32, beta: impl Fn(usize) -> f32) -> Self {
        let mut end = 0;
        for g in self.shape.geometry() {
            end += g.parameters();
            for c in 0..g.c_out {
                self.params[end - 2 * g.c_out + c] = gamma(c);
                self.params[end - g.c_out + c] = beta(c);
            }
        }
        self
    }

    fn forward(&self, body: &'static dyn InstructionSet) -> Output {
        self.pass(body, true)
    }

    fn pass(&self, body: &'static dyn InstructionSet, keep: bool) -> Output {
        let planned = Planned::by(body, &self.shape, self.precision);
        let pass = Pass { keep, lanes: self.lanes, batches: 1 };
        forward(&planned, &self.x, &self.parameters(), (self.running.as_deref(), EPSILON), pass)
    }

    /// The parameters by block.
    fn parameters(&self) -> Vec<Parameters<'_>> {
        parameters(&self.shape, &self.params)
    }

    fn run(&self, body: &'static dyn InstructionSet) -> (Output, Gradients) {
        let out = self.forward(body);
        let saved = out.saved.as_ref().expect("it was asked for");
        let gradients = backward(&self.shape, saved, &self.dy, true);
        (out, gradients)
    }

    fn reference(&self) -> Reference {
        let running = self.running.as_deref();
        reference(&self.shape, &self.x, &self.params, running, EPSILON, &self.dy)
    }

    /// With images that leave nothing to rounding.
    ///
    /// Where rounding decides what passes a ReLU or a max-pool, the gradient is not continuous, so
    /// the images are drawn again until every decision is further away than `margin`.
    fn decided(mut self, margin: f64) -> Self {
        for seed in 100..120 {
            if self.reference().margin > margin {
                break;
            }
            self.x = noise(self.x.len(), seed);
        }
        self
    }

    /// Asserts that all bodies agree with the reference.
    fn check(&self) {
        let case = self.clone().decided(5e-6);
        case.agrees_with(&case.reference());
    }

    fn agrees_with(&self, wanted: &Reference) {
        for body in bodies() {
            let name = body.name();
            let (out, gradients) = self.run(body);
            let near = |what: &str, got: &[f32], wanted: &[f64]| {
                let error = distance(got, wanted);
                assert!(error <= 1e-5, "{name} {what}: {error:e} for {:?}", self.shape);
            };
            near("y", &out.y, &wanted.y);
            if self.running.is_none() {
                near("moments", &out.moments, &wanted.moments);
            }
            near("dx", &gradients.dx.expect("it was asked for"), &wanted.dx);
            for (name, part) in named_parts(&self.shape) {
                near(&name, &gradients.dparams[part.clone()], &wanted.dparams[part]);
            }
        }
    }
}

/// Relative L2 distance, where a root mean square below 0.1 counts as 0.1: what is smaller is the
/// difference of larger terms here, and has fewer digits.
fn distance(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let squares = |all: &mut dyn Iterator<Item = f64>| all.map(|v| v * v).sum::<f64>().sqrt();
    let error = squares(&mut got.iter().zip(wanted).map(|(&a, b)| f64::from(a) - b));
    let size = squares(&mut wanted.iter().copied());
    error / size.max(0.1 * (got.len() as f64).sqrt())
}

#[test]
fn channels_need_not_fill_a_tile() {
    for c in [1, 3, 31, 33, 64] {
        Case::new(stack([2, c, 6, 5], &[c.max(2), 7], 1, false)).check();
    }
}

#[test]
fn every_size_agrees_with_the_reference() {
    for (h, w) in [(1, 1), (1, 2), (5, 7), (3, 11), (9, 4), (30, 31)] {
        Case::new(stack([3, 3, h, w], &[17, 5], 1, false)).check();
    }
}

#[test]
fn odd_sizes_drop_the_last_row_and_column_when_pooled() {
    for (h, w) in [(5, 7), (7, 5), (6, 9), (4, 4), (4, 5), (17, 17), (19, 100)] {
        Case::new(stack([3, 2, h, w], &[19, 8], 1, true)).check();
    }
}

#[test]
fn every_batch_size_agrees_with_the_reference() {
    for n in [1, 2, 5, 9, 33] {
        Case::new(stack([n, 1, 8, 8], &[16, 16], 1, true)).check();
    }
}

#[test]
fn four_blocks_agree_with_the_reference() {
    for depth in [1, 2, 4] {
        Case::new(stack([2, 1, 28, 28], &[32, 16, 16, 8][..depth], 1, true)).check();
    }
}

#[test]
fn wide_blocks_agree_with_the_reference() {
    Case::new(stack([2, 64, 14, 14], &[64, 64], 1, true)).check();
}

#[test]
fn patches_may_hang_over_every_edge() {
    // So many images that the transforms pay.
    for (n, h, w) in [(40, 3, 3), (12, 4, 4), (8, 7, 6), (5, 13, 9), (12, 10, 3)] {
        Case::new(stack([n, 33, h, w], &[40, 33], 1, false)).check();
    }
    Case::new(stack([19, 32, 7, 7], &[32, 32], 1, true)).check();
    Case::new(stack([5, 32, 9, 9], &[32], 1, true)).running().check();
    Case::new(stack([3, 40, 16, 15], &[33, 32], 2, false)).check();
}

#[test]
fn strided_blocks_agree_with_the_reference() {
    for (h, w) in [(28, 28), (7, 9), (1, 1), (2, 3)] {
        Case::new(stack([7, 1, h, w], &[9, 16, 16], 2, false)).check();
    }
    Case::new(stack([2, 3, 13, 14], &[9, 16], 2, false)).check();
    Case::new(stack([3, 3, 13, 14], &[9], 2, true)).check();
}

#[test]
fn lanes_of_few_images_agree_with_the_reference() {
    for n in [1, 5, 19] {
        Case::new(stack([n, 1, 14, 13], &[16, 9, 32], 2, false)).in_lanes(8).check();
    }
    Case::new(stack([5, 33, 8, 8], &[32, 33], 1, true)).in_lanes(3).check();
}

#[test]
fn given_statistics_make_a_fixed_affine_map() {
    Case::new(stack([5, 1, 14, 14], &[16, 9], 1, true)).running().check();
    Case::new(stack([2, 33, 5, 7], &[16, 9], 1, false)).running().check();
    Case::new(stack([2, 3, 9, 9], &[16, 9], 2, false)).running().check();
}

#[test]
fn gamma_may_be_negative() {
    let case = Case::new(stack([4, 1, 12, 12], &[16, 16], 1, true));
    let sign = |c| if c % 2 == 0 { -1.0 } else { 0.7 };
    case.affine(sign, |_| 0.1).check();
}

#[test]
fn gamma_may_be_zero() {
    for beta in [0.5, -0.5, 0.0] {
        let zero_at = |c| if c % 3 == 0 { 0.0 } else { 1.0 };
        let case = Case::new(stack([4, 1, 12, 12], &[16, 16], 1, true));
        case.affine(zero_at, |_| beta).check();
    }
}

#[test]
fn gamma_may_be_tiny() {
    let case = Case::new(stack([4, 2, 6, 6], &[16, 16], 1, false));
    let tiny_at = |c| if c % 3 == 0 { 1e-9 } else { 1.0 };
    case.clone().affine(tiny_at, |_| 0.5).check();
    case.affine(tiny_at, |_| 0.0).check();
}

#[test]
fn a_beta_far_above_gamma_keeps_the_digits_of_dgamma() {
    let case = Case::new(stack([4, 2, 6, 6], &[16], 1, false));
    case.affine(|_| 1e-3, |_| 3.0).check();
}

#[test]
fn a_large_mean_keeps_the_digits_of_the_variance() {
    let mut case = Case::new(stack([6, 1, 1, 1], &[16], 1, false));
    case.x.iter_mut().for_each(|x| *x = (*x * 8.0).round() / 8.0 + 4096.0);
    let wanted = reference(&case.shape, &case.x, &case.params, None, EPSILON, &case.dy);
    let (got, wanted) = (case.forward(bodies()[0]).moments, wanted.moments);
    for c in 16..32 {
        let error = (f64::from(got[c]) - wanted[c]).abs() / wanted[c];
        assert!(error < 1e-2, "variance {} for {}", got[c], wanted[c]);
    }
}

#[test]
fn constant_channels_stay_finite() {
    let mut case = Case::new(stack([4, 1, 8, 8], &[16, 16], 1, true));
    let weight = case.shape.geometry()[0].weight();
    case.params[..weight / 2].fill(0.0);
    case.check();
}

#[test]
fn what_was_saved_can_be_used_twice() {
    let case = Case::new(stack([5, 1, 9, 9], &[16, 16], 1, true));
    let saved = case.forward(bodies()[0]).saved.expect("it was asked for");
    let go = |dx| backward(&case.shape, &saved, &case.dy, dx);
    let (first, second) = (go(true), go(false));
    assert!(second.dx.is_none());
    assert_eq!(first.dparams, second.dparams);
    assert_eq!(first.dx, go(true).dx);
}

#[test]
fn keeping_nothing_changes_no_output() {
    for case in [
        Case::new(stack([5, 1, 9, 9], &[16, 16], 1, true)),
        Case::new(stack([5, 5, 9, 9], &[16, 16], 1, true)).running(),
        Case::new(stack([60, 3, 8, 8], &[32, 32], 1, true)).running(),
    ] {
        let planned = Planned::new(&case.shape, Precision::F32);
        let pass = Pass { keep: false, lanes: 1, batches: 1 };
        let out = forward(
            &planned,
            &case.x,
            &case.parameters(),
            (case.running.as_deref(), EPSILON),
            pass,
        );
        let kept = case.forward(bodies()[0]);
        assert!(out.saved.is_none());
        assert_eq!((out.y, out.moments), (kept.y, kept.moments));
    }
}

#[test]
fn blocks_may_differ() {
    let block = |channels_out, stride, pool| BlockShape { channels_out, stride, pool };
    let blocks = vec![block(5, 1, true), block(40, 2, false), block(3, 1, false)];
    Case::new(StackShape { n: 4, c: 3, h: 15, w: 17, blocks }).check();
}

#[test]
#[should_panic(expected = "without pixels")]
fn a_block_without_pixels_is_refused() {
    stack([1, 1, 3, 3], &[4, 4], 1, true).output();
}

#[test]
fn saved_crosses_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<super::forward::Saved>();
}
