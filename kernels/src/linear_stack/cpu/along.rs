//! How outputs and gradients of a lane change where its operands move.

use super::{Lane, Parts, Room, part};
use crate::cpu::product::Start;

/// Where a lane is, and how it moves.
#[derive(Clone, Copy)]
pub struct Moves<'a> {
    /// Of `x`, and weight and bias of every layer; what is not there stands still.
    pub operands: Parts<'a, Option<&'a [f32]>>,
    pub hidden: &'a [f32],
    /// How this moves, by [`forward_along`].
    pub moved: &'a [f32],
    /// Of [`backward`](super::backward).
    pub between: &'a [f32],
}

impl<'a> Parts<'a, Option<&'a [f32]>> {
    fn at(&self, place: usize) -> Option<&'a [f32]> {
        self.all[place].map(|all| part(all, self.lane))
    }

    /// How the input of a layer moves.
    fn input<'b>(&self, lane: Lane<'_>, moved: &'b [f32], layer: usize) -> Option<&'b [f32]>
    where
        'a: 'b,
    {
        match layer.checked_sub(1) {
            None => self.at(0),
            Some(before) => Some(&moved[lane.outputs(before)]),
        }
    }
}

/// Writes how the outputs `[examples, outputs]` move to `y`, and how what lies between the layers does
/// to `moved`.
pub fn forward_along(
    room: &Room,
    lane: Lane<'_>,
    hidden: &[f32],
    moves: Parts<'_, Option<&[f32]>>,
    moved: &mut [f32],
    y: &mut [f32],
) {
    for layer in 0..=lane.last() {
        let [_, outputs] = lane.sides(layer);
        let (before, from) = moved.split_at_mut(lane.outputs(layer).start);
        let last = layer == lane.last();
        let out = if last { &mut *y } else { &mut from[..lane.examples * outputs] };
        let pairs = [
            moves.input(lane, before, layer).map(|input| [input, lane.weight(layer)]),
            moves.at(1 + 2 * layer).map(|weight| [lane.input(hidden, layer), weight]),
        ];
        let start = moves.at(2 + 2 * layer).map_or(Start::Zeros, Start::Row);
        room.add_up(pairs, outputs, start, out);
        if !last {
            room.body.gate(&hidden[lane.outputs(layer)], out);
        }
    }
}

/// Writes to zeros how the gradients of `x`, if it is wanted, and of weight and bias of every layer
/// move, where that of the output changes by `change [examples, outputs]`, or stays.
pub fn backward_along(
    room: &mut Room,
    lane: Lane<'_>,
    Moves { operands, hidden, moved, between }: Moves<'_>,
    change: Option<&[f32]>,
    x_wanted: bool,
    to: &mut [&mut [f32]],
) {
    let mut all = std::mem::take(&mut room.all);
    all.resize(lane.outputs(lane.last()).end, 0.0);
    let mut changes = change.is_some();
    if let Some(change) = change {
        all[lane.outputs(lane.last())].copy_from_slice(change);
    }
    for layer in (0..=lane.last()).rev() {
        let sides @ [_, outputs] = lane.sides(layer);
        let (before, from) = all.split_at_mut(lane.outputs(layer).start);
        let grad = &between[lane.outputs(layer)];
        let change = changes.then_some(&from[..lane.examples * outputs]);
        let pairs = [
            operands.input(lane, moved, layer).map(|input| [input, grad]),
            change.map(|change| [lane.input(hidden, layer), change]),
        ];
        room.weight_gradient(pairs, sides, to[1 + 2 * layer]);
        if let Some(change) = change {
            room.bias_gradient(change, outputs, to[2 + 2 * layer]);
        }
        let pairs = [
            change.map(|change| [change, lane.weight(layer)]),
            operands.at(1 + 2 * layer).map(|weight| [grad, weight]),
        ];
        changes = pairs != [None; 2];
        match layer.checked_sub(1) {
            Some(below) if changes => {
                let out = &mut before[lane.outputs(below)];
                room.through_weights(pairs, sides, out);
                room.body.gate(&hidden[lane.outputs(below)], out);
            }
            None if x_wanted => room.through_weights(pairs, sides, to[0]),
            _ => {}
        }
    }
    room.all = all;
}
