//! Tangents of the outputs of a lane, and what they add to its gradients.

use std::borrow::Cow;

use super::{Lane, Pairs, Parts, Workspace, part};
use crate::cpu::product::Start;

/// What the tangents of the gradients are computed from, for one lane.
#[derive(Clone, Copy)]
pub struct Tangents<'a> {
    /// Tangents of `x`, and weight and bias of every layer; `None` is zero.
    pub operands: Parts<'a, Option<Cow<'a, [f32]>>>,
    /// The tangent of the hidden activations, by [`jvp`].
    pub hidden_tangent: &'a [f32],
    /// The gradients of all layers' outputs, by [`backward`](super::backward).
    pub layer_grads: &'a [f32],
}

impl<'a> Parts<'a, Option<Cow<'a, [f32]>>> {
    fn at(&self, place: usize) -> Option<&'a [f32]> {
        self.all[place].as_deref().map(|all| part(all, self.lane))
    }

    /// The tangent of the input of a layer.
    fn input<'b>(
        &self,
        lane: Lane<'_>,
        hidden_tangent: &'b [f32],
        layer: usize,
    ) -> Option<&'b [f32]>
    where
        'a: 'b,
    {
        match layer.checked_sub(1) {
            None => self.at(0),
            Some(before) => Some(&hidden_tangent[lane.outputs(before)]),
        }
    }
}

/// Writes the tangent of the outputs `[examples, outputs]` to `y`, and that of the hidden activations to
/// `hidden_tangent`.
pub fn jvp(
    workspace: &Workspace,
    lane: Lane<'_>,
    hidden: &[f32],
    tangents: Parts<'_, Option<Cow<'_, [f32]>>>,
    hidden_tangent: &mut [f32],
    y: &mut [f32],
) {
    for layer in 0..=lane.last() {
        let [_, outputs] = lane.sides(layer);
        let (before, from) = hidden_tangent.split_at_mut(lane.outputs(layer).start);
        let last = layer == lane.last();
        let out = if last { &mut *y } else { &mut from[..lane.examples * outputs] };
        let pairs = [
            tangents.input(lane, before, layer).map(|input| [input, lane.weight(layer)]),
            tangents.at(1 + 2 * layer).map(|weight| [lane.input(hidden, layer), weight]),
        ];
        let start = tangents.at(2 + 2 * layer).map_or(Start::Zeros, Start::Row);
        workspace.add_up(pairs, outputs, start, out);
        if !last {
            workspace.body.gate(&hidden[lane.outputs(layer)], out);
        }
    }
}

impl<'a> Tangents<'a> {
    /// What tangents add to products of a layer's gradient: of its weight, the tangent of the input
    /// times the gradient of the outputs, and of its input, that times the tangent of the weight.
    pub fn pairs(&self, lane: Lane<'_>, layer: usize) -> Pairs<'a> {
        let grad = &self.layer_grads[lane.outputs(layer)];
        let input = self.operands.input(lane, self.hidden_tangent, layer);
        let weight = self.operands.at(1 + 2 * layer);
        [input.map(|input| [input, grad]), weight.map(|weight| [grad, weight])]
    }
}
