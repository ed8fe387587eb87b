//! Tangents of the gradients.

use std::borrow::Cow;

use super::super::backward::{IntermediateGrads, write_gradients};
use super::super::forward::Saved;
use super::forward::SavedTangent;
use crate::cpu::images::Images;

/// The tangents of the gradients of the input and the parameters, where `dy_tangent [n, c, h, w]` is
/// that of the gradient of the output; `None` is zero.
///
/// `saved_tangent` is what [`jvp`](super::jvp()) saved at the point of `saved`, `intermediate_grads` are
/// those of [`backward`](super::super::backward()) there. The result is returned as by that.
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
    let wanted: usize = shape.output().iter().product();
    if let Some(dy) = dy_tangent {
        assert_eq!(dy.len(), wanted, "the tangent of the gradient of the output of {shape:?}");
    }
    let blocks = shape.geometry();
    assert_eq!(dparams.len(), 4 * blocks.len(), "the parts of the gradients of {shape:?}");
    let stack = Stack { saved, saved_tangent };

    let dy_tangent = dy_tangent.map_or_else(|| vec![0.0; wanted].into(), Cow::from);
    let (mut grad_tangent, _) = saved.pack_output(&dy_tangent, |_| (), |_, _, ()| ());
    let mut dx = None;
    for (k, primal) in intermediate_grads.0.iter().enumerate().rev() {
        let pixels = saved.pixels(&saved.plans[k]);
        let grads = Dual { primal, tangent: &grad_tangent };
        let gradients = stack.sums(k, grads).map(|image, sums| {
            let norms = (saved.norms[k].of(image), saved_tangent.norms[k].of(image));
            sums.gradients(norms, &saved.parameters[k], pixels)
        });
        let (norm, norm_tangent) = gradients.unzip();
        let (input, weight) = stack.block(k, grads, (&norm, &norm_tangent), k > 0 || need_dx);
        write_gradients(saved, k, &weight, &norm_tangent, &mut dparams[4 * k..4 * k + 4]);
        grad_tangent = input;
        if k == 0 && need_dx {
            dx = Some(saved.unpack_input(&grad_tangent));
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
    pub saved: &'a Saved,
    pub saved_tangent: &'a SavedTangent,
}
