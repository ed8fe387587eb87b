//! How outputs and gradients of a lane change where its operands move.

use super::{Between, Hidden, Lane, Room, Rows, copy_row, narrow};

/// Where a lane is, and how it moves.
pub struct Moves<'a> {
    /// Of `x`, and weight and bias of every layer; what is not there stands still.
    pub operands: &'a [Option<&'a [f32]>],
    pub hidden: &'a Hidden,
    /// How these move, by [`forward_along`].
    pub moved: &'a Hidden,
    pub between: &'a Between,
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

/// Writes how the outputs `[examples, outputs]` move to `y`, and returns how the activations do.
pub fn forward_along(
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
        let length = lane.examples * width;
        let mut out = if layer == last { room.take(length) } else { vec![0.0; length] };
        match moves[2 + 2 * layer] {
            Some(bias) => out.chunks_exact_mut(width).for_each(|row| copy_row(bias, row)),
            None if layer == last => out.fill(0.0),
            None => {}
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

/// Writes to zeros how the gradients of `x`, if it is wanted, and of weight and bias of every layer
/// move, where that of the output changes by `change [examples, outputs]`, or stays.
pub fn backward_along(
    room: &mut Room,
    lane: &Lane<'_>,
    Moves { operands, hidden, moved, between }: Moves<'_>,
    change: Option<&[f32]>,
    x_wanted: bool,
    to: &mut [&mut [f32]],
) {
    let mut change = change.map(|change| room.spread(lane, change));
    for (layer, [weight, _]) in lane.layers.iter().enumerate().rev() {
        let (sides, grad) = (lane.sides(layer), &between.0[layer][..]);
        let mut pairs = Vec::with_capacity(2);
        let input = moved_input(room, lane, (operands, moved), layer);
        pairs.extend(input.map(|input| (input, grad)));
        let input = room.input(lane, hidden, layer);
        pairs.extend(change.as_deref().map(|change| (input, change)));
        let own = &mut to[1 + 2 * layer..];
        room.gradients_of(lane.examples, sides, &pairs, change.as_deref(), own);
        if layer == 0 && !x_wanted {
            break;
        }
        let mut pairs = Vec::with_capacity(2);
        pairs.extend(change.as_deref().map(|change| (change, *weight)));
        pairs.extend(operands[1 + 2 * layer].map(|moved| (grad, moved)));
        let mut changed = room.through_weights(&pairs, lane.examples, sides);
        match layer.checked_sub(1) {
            Some(below) => room.body.gate(&hidden.0[below], &mut changed),
            None => narrow(&changed, room.padded(lane.widths[0]), to[0], lane.widths[0]),
        }
        change.replace(changed).into_iter().for_each(|old| room.give(old));
    }
    change.into_iter().for_each(|change| room.give(change));
}
