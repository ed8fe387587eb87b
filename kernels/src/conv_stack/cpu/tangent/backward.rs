//! Tangents of the gradients.

use std::ops::Range;

use rayon::prelude::*;

use super::super::backward::{IntermediateGrads, Stack as PrimalStack, write_gradients};
use super::super::forward::Saved;
use super::super::parameters::Parameters;
use super::forward::SavedTangent;
use crate::cpu::images::{Images, Keep};

/// The tangents of the gradients of the input and the parameters, where `dy_tangent [n, c, h, w]` is
/// that of the gradient of the output; `None` is zero.
///
/// `tangents` are those of the parameters that [`jvp`](super::jvp()) got, and `saved_tangent` what it
/// saved, at the point of `saved` and `params`; `intermediate_grads` are those of
/// [`backward`](super::super::backward()) there. The result is returned as by that.
///
/// # Panics
/// If a length does not fit the shape of that pass.
pub fn jvp_of_vjp(
    saved: &Saved,
    params: &[f32],
    (tangents, saved_tangent): (&[f32], &SavedTangent),
    (intermediate_grads, dy_tangent): (&IntermediateGrads, Option<&[f32]>),
    need_dx: bool,
    dparams: &mut [&mut [f32]],
) -> Option<Vec<f32>> {
    let shape = &saved.shape;
    let wanted: usize = shape.output().iter().product();
    if let Some(dy) = dy_tangent {
        assert_eq!(dy.len(), wanted, "the tangent of the gradient of the output of {shape:?}");
    }
    let blocks = shape.geometry();
    assert_eq!(dparams.len(), 4 * blocks.len(), "the parts of the gradients of {shape:?}");
    let parameters = Parameters::split(&blocks, params);
    let parameter_tangents = Parameters::split(&blocks, tangents);
    let primal = PrimalStack { saved, parameters: &parameters, slots: &saved.slots };
    let stack = Stack { primal, saved_tangent, parameter_tangents: &parameter_tangents };

    let mut grad_tangent = match dy_tangent {
        Some(dy) => stack.pack(dy),
        None => stack.pack(&vec![0.0; wanted]),
    };
    let mut dx = None;
    for (k, primal) in intermediate_grads.0.iter().enumerate().rev() {
        let pixels = saved.pixels(&saved.plans[k]);
        let norms = (&saved.norms[k], &saved_tangent.norms[k]);
        let grads = Dual { primal, tangent: &grad_tangent };
        let sums = stack.sums(k, grads);
        let (norm, norm_tangent) = sums.gradients(norms, &parameters[k], pixels);
        let step = stack.block(k, grads, (&norm, &norm_tangent), k > 0 || need_dx);
        write_gradients(saved, k, &step.weight, &norm_tangent, &mut dparams[4 * k..4 * k + 4]);
        grad_tangent = step.input;
        if k == 0 && need_dx {
            dx = Some(stack.primal.unpack_input(&grad_tangent));
        }
    }
    dx
}

/// A map and its tangent, a dual number for each pixel.
#[derive(Clone, Copy)]
pub(super) struct Dual<'a> {
    pub primal: &'a Images,
    pub tangent: &'a Images,
}

/// What all slots share.
pub(super) struct Stack<'a> {
    pub primal: PrimalStack<'a>,
    pub saved_tangent: &'a SavedTangent,
    pub parameter_tangents: &'a [Parameters<'a>],
}

impl Stack<'_> {
    /// A gradient of the output, in tiles.
    fn pack(&self, dy: &[f32]) -> Images {
        let map = self.primal.saved.plans.last().expect("a stack has blocks").out;
        let mut grad = Images::new(self.primal.slots, map.image(), Keep::All);
        let image = map.channels * map.h * map.w;
        let parts = grad.split(self.primal.slots).into_par_iter().zip(self.primal.slots);
        parts.for_each(|(mut grad, images): (_, &Range<usize>)| {
            for (i, n) in images.clone().enumerate() {
                map.pack(&dy[n * image..(n + 1) * image], grad.get_mut(i));
            }
        });
        grad
    }
}
