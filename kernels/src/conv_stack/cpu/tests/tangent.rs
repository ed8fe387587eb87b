//! Tangents against central differences of the reference.

use super::reference::{Reference, exact, stack, wide};
use super::{
    BlockShape, Case, EPSILON, Gradients, InstructionSet, StackShape, bodies, distance,
    named_parts, noise, parameters, parts,
};
use crate::conv_stack::cpu::{backward, jvp, jvp_of_vjp};

/// A case with tangents for all of its inputs.
pub(super) struct CaseWithTangents {
    pub case: Case,
    images: Option<Vec<f32>>,
    params: Vec<f32>,
    dy: Option<Vec<f32>>,
}

impl CaseWithTangents {
    pub fn new(case: Case) -> Self {
        // Beyond the step of the central differences.
        let case = case.decided(3e-5);
        let images = Some(noise(case.x.len(), 71));
        let params = noise(case.params.len(), 72).iter().map(|v| 0.3 * v).collect();
        let dy = Some(noise(case.dy.len(), 73));
        Self { case, images, params, dy }
    }

    /// The reference at the inputs plus `step` times their tangents.
    fn at(&self, step: f64) -> Reference {
        let stepped = |from: &[f32], by: Option<&Vec<f32>>| match by {
            Some(by) => wide(from).iter().zip(by).map(|(a, &b)| a + step * f64::from(b)).collect(),
            None => wide(from),
        };
        let case = &self.case;
        let (x, dy) = (stepped(&case.x, self.images.as_ref()), stepped(&case.dy, self.dy.as_ref()));
        let params = stepped(&case.params, Some(&self.params));
        let running = case.running.as_deref().map(wide);
        exact(&case.shape, x, &params, running.as_deref(), f64::from(EPSILON), dy)
    }

    pub fn run(&self, body: &'static dyn InstructionSet) -> (Vec<f32>, Gradients) {
        let case = &self.case;
        let saved = case.forward(body).saved.expect("it was asked for");
        let tangents = parameters(&case.shape, &self.params);
        let (y, tangent) = jvp(&saved, self.images.as_deref(), &tangents);
        let mut dparams = vec![f32::NAN; case.params.len()];
        let to = &mut parts(&case.shape, &mut dparams);
        let (_, intermediate_grads) = backward(&saved, &case.dy, (false, true), to);
        let grads = (&intermediate_grads.expect("kept, as asked"), self.dy.as_deref());
        let dx = jvp_of_vjp(&saved, &tangent, grads, true, to);
        (y, Gradients { dx, dparams })
    }

    fn check(&self) {
        let step = 1e-6;
        let (after, before) = (self.at(step), self.at(-step));
        let slope = |a: &[f64], b: &[f64]| {
            a.iter().zip(b).map(|(a, b)| (a - b) / (2.0 * step)).collect::<Vec<_>>()
        };
        for body in bodies() {
            let (y, gradients) = self.run(body);
            let near = |what: &str, got: &[f32], wanted: Vec<f64>| {
                let error = distance(got, &wanted);
                let (name, shape) = (body.name(), &self.case.shape);
                assert!(error <= 1e-4, "{name} {what}: {error:e} for {shape:?}");
            };
            near("y", &y, slope(&after.y, &before.y));
            near("dx", &gradients.dx.expect("asked for"), slope(&after.dx, &before.dx));
            let wanted = slope(&after.dparams, &before.dparams);
            for (name, part) in named_parts(&self.case.shape) {
                near(&name, &gradients.dparams[part.clone()], wanted[part].to_vec());
            }
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    wide(a).iter().zip(wide(b)).map(|(a, b)| a * b).sum()
}

#[test]
fn tangents_are_central_differences() {
    CaseWithTangents::new(Case::new(stack([3, 1, 12, 12], &[8, 5], 1, true))).check();
    CaseWithTangents::new(Case::new(stack([2, 3, 5, 7], &[17, 33], 1, false))).check();
    CaseWithTangents::new(Case::new(stack([9, 33, 6, 5], &[7], 1, false))).check();
    CaseWithTangents::new(Case::new(stack([4, 2, 11, 9], &[9, 16], 2, false))).check();
    CaseWithTangents::new(Case::new(stack([3, 40, 16, 15], &[33, 32], 1, true))).check();
    CaseWithTangents::new(Case::new(stack([6, 2, 13, 9], &[9, 16, 5], 2, false)).in_lanes(8))
        .check();
    CaseWithTangents::new(Case::new(stack([1, 1, 28, 28], &[16, 16, 8, 8], 1, true))).check();
}

#[test]
fn tangents_hold_for_given_statistics() {
    CaseWithTangents::new(Case::new(stack([3, 1, 12, 12], &[8, 5], 1, true)).running()).check();
    CaseWithTangents::new(Case::new(stack([5, 33, 9, 9], &[32, 32], 1, false)).running()).check();
}

#[test]
fn tangents_hold_for_every_gamma() {
    // In windows, a tiny gamma would leave the reference other largest pixels than f32.
    for (gamma, pool) in [(0.0, true), (-0.7, true), (1e-6, false)] {
        let case = Case::new(stack([4, 1, 8, 8], &[8, 8], 1, pool));
        let case = case.affine(|c| if c % 3 == 0 { gamma } else { 1.0 }, |_| 0.2);
        let mut moving = CaseWithTangents::new(case);
        // Where gamma is small, a step along it changes which pixel of a window is the largest.
        let mut end = 0;
        for g in moving.case.shape.geometry() {
            end += g.parameters();
            (0..g.c_out).step_by(3).for_each(|c| moving.params[end - 2 * g.c_out + c] = 0.0);
        }
        moving.check();
    }
}

#[test]
fn blocks_with_tangents_may_differ() {
    let block = |channels_out, stride, pool| BlockShape { channels_out, stride, pool };
    let blocks = vec![block(5, 1, true), block(40, 2, false), block(3, 1, false)];
    CaseWithTangents::new(Case::new(StackShape { n: 4, c: 3, h: 15, w: 17, blocks })).check();
}

#[test]
fn what_stands_still_need_not_be_named() {
    let case = Case::new(stack([3, 2, 9, 8], &[8, 5], 1, true));
    let still = CaseWithTangents { images: None, dy: None, ..CaseWithTangents::new(case.clone()) };
    still.check();
    let (images, dy) = (vec![0.0; case.x.len()], vec![0.0; case.dy.len()]);
    let zeros =
        CaseWithTangents { images: Some(images), dy: Some(dy), ..CaseWithTangents::new(case) };
    let (a, b) = (still.run(bodies()[0]), zeros.run(bodies()[0]));
    assert!(distance(&a.0, &wide(&b.0)) < 1e-6);
    assert!(distance(&a.1.dparams, &wide(&b.1.dparams)) < 1e-6);
}

#[test]
fn the_hessian_is_symmetric() {
    let case = Case::new(stack([5, 1, 10, 10], &[16, 8], 1, true));
    let one = CaseWithTangents { images: None, dy: None, ..CaseWithTangents::new(case) };
    let other = CaseWithTangents {
        case: one.case.clone(),
        images: None,
        dy: None,
        params: noise(one.params.len(), 99).iter().map(|v| 0.3 * v).collect(),
    };
    let products = [
        dot(&one.run(bodies()[0]).1.dparams, &other.params),
        dot(&other.run(bodies()[0]).1.dparams, &one.params),
    ];
    let error = (products[0] - products[1]).abs() / products[0].abs();
    assert!(error < 1e-4, "{products:?}");
}

#[test]
fn gradients_are_the_transpose_of_tangents() {
    for case in [
        Case::new(stack([3, 33, 12, 9], &[34, 5], 1, true)),
        Case::new(stack([5, 1, 9, 11], &[16, 8], 2, false)).running(),
    ] {
        let case = CaseWithTangents::new(case);
        for body in bodies() {
            let (_, gradients) = case.case.run(body);
            let (y, _) = case.run(body);
            let images = case.images.as_ref().expect("they have a tangent");
            let there = dot(&case.case.dy, &y);
            let back = dot(&gradients.dx.expect("asked for"), images)
                + dot(&gradients.dparams, &case.params);
            let error = (there - back).abs() / there.abs();
            assert!(error < 1e-4, "{}: {there} and {back}", body.name());
        }
    }
}
