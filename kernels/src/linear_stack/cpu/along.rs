//! How outputs and gradients of a lane change where its operands move.

use super::{Hidden, Lane, Room, Rows, copy_row, narrow};

/// How a lane moves.
pub struct Directions<'a> {
    /// `x`, and weight and bias of every layer; what is not there stands still.
    pub moves: &'a [Option<&'a [f32]>],
    /// Gradient of the output `[examples, outputs]`, which stays.
    pub grad: &'a [f32],
}

/// Writes to zeros how the outputs and the gradients change along the directions: the outputs' change
/// `[examples, outputs]`, and those of `x`, if it is wanted, and of weight and bias of every layer, if
/// any operand is.
pub fn along(
    room: &mut Room,
    lane: &Lane<'_>,
    hidden: &Hidden,
    Directions { moves, grad }: Directions<'_>,
    wanted: &[bool],
    (y, to): (&mut [f32], &mut [&mut [f32]]),
) {
    let moved = forward_along(room, lane, hidden, moves, y);
    if wanted.contains(&true) {
        backward_along(room, lane, [hidden, &moved], (moves, grad), wanted[0], to);
    }
    moved.0.into_iter().for_each(|values| room.give(values));
}

/// How the input of a layer moves.
fn moved_input<'a>(
    room: &Room,
    lane: &Lane<'_>,
    (moves, moved): (&[Option<&'a [f32]>], &'a Hidden),
    layer: usize,
) -> Option<Rows<'a>> {
    match layer.checked_sub(1) {
        None => moves[0].map(|values| Rows { values, step: lane.widths[0] }),
        Some(before) => {
            Some(Rows { values: &moved.0[before], step: room.padded(lane.widths[layer]) })
        }
    }
}

/// Writes how the outputs move to `y`, and returns how the activations do.
fn forward_along(
    room: &mut Room,
    lane: &Lane<'_>,
    hidden: &Hidden,
    moves: &[Option<&[f32]>],
    y: &mut [f32],
) -> Hidden {
    let last = lane.layers.len() - 1;
    let mut moved = Hidden(Vec::with_capacity(last));
    for (layer, [weight, _]) in lane.layers.iter().enumerate() {
        let sides @ [_, outputs] = lane.sides(layer);
        let width = room.padded(outputs);
        let mut out = room.take(lane.examples * width);
        match moves[2 + 2 * layer] {
            Some(bias) => out.chunks_exact_mut(width).for_each(|row| copy_row(bias, row)),
            None => out.fill(0.0),
        }
        if let Some(input) = moved_input(room, lane, (moves, &moved), layer) {
            room.add_product(input, weight, sides, &mut out);
        }
        if let Some(weight) = moves[1 + 2 * layer] {
            room.add_product(room.input(lane, hidden, layer), weight, sides, &mut out);
        }
        if layer == last {
            narrow(&out, width, y, outputs);
            room.give(out);
        } else {
            room.body.gate(&hidden.0[layer], &mut out);
            moved.0.push(out);
        }
    }
    moved
}

/// Writes how the gradients move where the activations do, and the gradient of the output stays.
fn backward_along(
    room: &mut Room,
    lane: &Lane<'_>,
    [hidden, moved]: [&Hidden; 2],
    (moves, grad): (&[Option<&[f32]>], &[f32]),
    x_wanted: bool,
    to: &mut [&mut [f32]],
) {
    let mut grad = room.spread(lane, grad);
    // How the gradient changes, which that of the output does not.
    let mut change: Option<Vec<f32>> = None;
    for (layer, [weight, _]) in lane.layers.iter().enumerate().rev() {
        let sides = lane.sides(layer);
        let mut pairs = Vec::with_capacity(2);
        let input = moved_input(room, lane, (moves, moved), layer);
        pairs.extend(input.map(|input| (input, &grad[..])));
        let input = room.input(lane, hidden, layer);
        pairs.extend(change.as_deref().map(|change| (input, change)));
        let to = &mut to[1 + 2 * layer..];
        room.gradients_of(lane.examples, sides, &pairs, change.as_deref(), to);
        if layer == 0 && !x_wanted {
            break;
        }
        let mut pairs = Vec::with_capacity(2);
        pairs.extend(change.as_deref().map(|change| (change, *weight)));
        pairs.extend(moves[1 + 2 * layer].map(|moved| (&grad[..], moved)));
        let mut changed = room.through_weights(&pairs, lane.examples, sides);
        if layer > 0 {
            let by = &hidden.0[layer - 1];
            room.body.gate(by, &mut changed);
            let mut before = room.through_weights(&[(&grad, weight)], lane.examples, sides);
            room.body.gate(by, &mut before);
            room.give(std::mem::replace(&mut grad, before));
        }
        change.replace(changed).into_iter().for_each(|old| room.give(old));
    }
    if let Some(change) = change {
        if x_wanted {
            narrow(&change, room.padded(lane.widths[0]), to[0], lane.widths[0]);
        }
        room.give(change);
    }
    room.give(grad);
}
