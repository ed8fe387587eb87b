//! Tangents of the gradients.

use std::ops::Range;

use rayon::prelude::*;

use super::super::backward::{Between, Stack as Point, write_gradients};
use super::super::forward::Saved;
use super::super::parameters::Parameters;
use super::forward::SavedTangent;
use crate::cpu::images::{Images, Keep};

/// How the gradients of the input and the parameters change along a direction, where the gradient of
/// the output changes by `dy_along [n, c, h, w]` (or stays as it is).
///
/// `direction` is that of the parameters in the forward pass that `tangent` comes from, at the point
/// of `saved` and `params`; `between` are the gradients there. The result is returned as that of
/// [`backward`](super::super::backward()) is.
///
/// # Panics
/// If a length does not fit the shape of that pass.
pub fn backward_along(
    saved: &Saved,
    params: &[f32],
    (direction, tangent): (&[f32], &SavedTangent),
    (between, dy_along): (&Between, Option<&[f32]>),
    need_dx: bool,
    dparams: &mut [&mut [f32]],
) -> Option<Vec<f32>> {
    let shape = &saved.shape;
    let wanted: usize = shape.output().iter().product();
    if let Some(dy) = dy_along {
        assert_eq!(dy.len(), wanted, "the change of the gradient of the output of {shape:?}");
    }
    let blocks = shape.geometry();
    assert_eq!(dparams.len(), 4 * blocks.len(), "the parts of the gradients of {shape:?}");
    let parameters = Parameters::split(&blocks, params);
    let moved = Parameters::split(&blocks, direction);
    let point = Point { saved, parameters: &parameters, slots: &saved.slots };
    let stack = Stack { point, tangent, moved: &moved };

    let mut along = match dy_along {
        Some(dy) => stack.pack(dy),
        None => stack.pack(&vec![0.0; wanted]),
    };
    let mut dx = None;
    for (k, point) in between.0.iter().enumerate().rev() {
        let pixels = saved.pixels(&saved.plans[k]);
        let norms = (&saved.norms[k], &tangent.norms[k]);
        let grads = Pair { point, along: &along };
        let sums = stack.sums(k, grads);
        let (norm, norm_along) = sums.gradients(norms, &parameters[k], pixels);
        let step = stack.block(k, grads, (&norm, &norm_along), k > 0 || need_dx);
        write_gradients(saved, k, &step.weight, &norm_along, &mut dparams[4 * k..4 * k + 4]);
        along = step.input;
        if k == 0 && need_dx {
            dx = Some(stack.point.unpack_input(&along));
        }
    }
    dx
}

/// A map and its tangent.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub point: &'a Images,
    pub along: &'a Images,
}

/// What all slots share.
pub(super) struct Stack<'a> {
    pub point: Point<'a>,
    pub tangent: &'a SavedTangent,
    /// The direction of the parameters.
    pub moved: &'a [Parameters<'a>],
}

impl Stack<'_> {
    /// A gradient of the output, in tiles.
    fn pack(&self, dy: &[f32]) -> Images {
        let map = self.point.saved.plans.last().expect("a stack has blocks").out;
        let mut grad = Images::new(self.point.slots, map.image(), Keep::All);
        let image = map.channels * map.h * map.w;
        let parts = grad.split(self.point.slots).into_par_iter().zip(self.point.slots);
        parts.for_each(|(mut grad, images): (_, &Range<usize>)| {
            for (i, n) in images.clone().enumerate() {
                map.pack(&dy[n * image..(n + 1) * image], grad.get_mut(i));
            }
        });
        grad
    }
}
