//! Tangents of the outputs and of the gradients of a lane.

use super::{Lane, Parts, Workspace, part};
use crate::cpu::product::Start;

/// What the tangents of the gradients are computed from, for one lane.
#[derive(Clone, Copy)]
pub struct Tangents<'a> {
    /// Tangents of `x`, and weight and bias of every layer; `None` is zero.
    pub operands: Parts<'a, Option<&'a [f32]>>,
    pub hidden: &'a [f32],
    /// Its tangent, by [`jvp`].
    pub hidden_tangent: &'a [f32],
    /// The gradients of all layers' outputs, by [`backward`](super::backward).
    pub layer_grads: &'a [f32],
}

impl<'a> Parts<'a, Option<&'a [f32]>> {
    fn at(&self, place: usize) -> Option<&'a [f32]> {
        self.all[place].map(|all| part(all, self.lane))
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
    tangents: Parts<'_, Option<&[f32]>>,
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

/// Writes to zeros the tangents of the gradients of `x`, if it is wanted, and of weight and bias of every
/// layer, given `grad_tangent [examples, outputs]`, that of the gradient of the output; `None` is zero.
pub fn jvp_of_vjp(
    workspace: &mut Workspace,
    lane: Lane<'_>,
    Tangents { operands, hidden, hidden_tangent, layer_grads }: Tangents<'_>,
    grad_tangent: Option<&[f32]>,
    x_wanted: bool,
    to: &mut [&mut [f32]],
) {
    let mut all = std::mem::take(&mut workspace.all);
    all.resize(lane.outputs(lane.last()).end, 0.0);
    let mut has_grad_tangent = grad_tangent.is_some();
    if let Some(grad_tangent) = grad_tangent {
        all[lane.outputs(lane.last())].copy_from_slice(grad_tangent);
    }
    for layer in (0..=lane.last()).rev() {
        let sides @ [_, outputs] = lane.sides(layer);
        let (before, from) = all.split_at_mut(lane.outputs(layer).start);
        let grad = &layer_grads[lane.outputs(layer)];
        let grad_tangent = has_grad_tangent.then_some(&from[..lane.examples * outputs]);
        let pairs = [
            operands.input(lane, hidden_tangent, layer).map(|input| [input, grad]),
            grad_tangent.map(|grad_tangent| [lane.input(hidden, layer), grad_tangent]),
        ];
        workspace.weight_gradient(pairs, sides, to[1 + 2 * layer]);
        if let Some(grad_tangent) = grad_tangent {
            workspace.bias_gradient(grad_tangent, outputs, to[2 + 2 * layer]);
        }
        let pairs = [
            grad_tangent.map(|grad_tangent| [grad_tangent, lane.weight(layer)]),
            operands.at(1 + 2 * layer).map(|weight| [grad, weight]),
        ];
        has_grad_tangent = pairs != [None; 2];
        match layer.checked_sub(1) {
            Some(below) if has_grad_tangent => {
                let out = &mut before[lane.outputs(below)];
                workspace.through_weights(pairs, sides, out);
                workspace.body.gate(&hidden[lane.outputs(below)], out);
            }
            None if x_wanted => workspace.through_weights(pairs, sides, to[0]),
            _ => {}
        }
    }
    workspace.all = all;
}
