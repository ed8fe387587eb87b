//! One lane of the layers over slices.
//!
//! Activations lie in rows of at least a tile, zeros behind fewer features; where rows are not whole
//! tiles, the last tile overlaps the one before it. A weight is read as it lies unless its rows are
//! shorter than a tile, and then from a padded copy; its transpose is never made: instead the examples'
//! gradients are turned, of which there are few.

mod along;

use crate::cpu::body::{Body, chosen};
use crate::cpu::contract::{Contraction, Places, Run};
use crate::cpu::interleave::Grid;

pub use along::{Moves, backward_along, forward_along};

/// What a lane is computed from.
pub struct Lane<'a> {
    /// Rows of `x`.
    pub examples: usize,
    /// Inputs of the first layer, then outputs of every layer.
    pub widths: &'a [usize],
    /// `[examples, inputs]`
    pub x: &'a [f32],
    /// Weight `[inputs, outputs]` and bias `[outputs]` of every layer.
    pub layers: Vec<[&'a [f32]; 2]>,
}

/// The activations between the layers, rows of at least a tile.
pub struct Hidden(Vec<Vec<f32>>);

/// The gradient of every layer's output before ReLU, rows of at least a tile for whole tiles of
/// examples.
pub struct Between(Vec<Vec<f32>>);

/// Rows of numbers, so far apart.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f32],
    step: usize,
}

/// Working memory that lanes use in turn, and what they run on.
pub struct Room {
    body: &'static dyn Body,
    free: Vec<Vec<f32>>,
    rows: Vec<usize>,
    /// Columns that two tiles write.
    twice: Vec<f32>,
}

impl Room {
    pub fn new() -> Self {
        Self { body: chosen(), free: Vec::new(), rows: Vec::new(), twice: Vec::new() }
    }

    /// So many numbers, whatever was in them before. Lanes ask for the same lengths one after another.
    fn take(&mut self, len: usize) -> Vec<f32> {
        match self.free.iter().position(|values| values.len() == len) {
            Some(place) => self.free.swap_remove(place),
            None => vec![0.0; len],
        }
    }

    fn give(&mut self, values: Vec<f32>) {
        if !values.is_empty() {
            self.free.push(values);
        }
    }

    /// At least a tile.
    fn padded(&self, width: usize) -> usize {
        width.max(self.body.tile())
    }

    /// In whole tiles.
    fn whole(&self, examples: usize) -> usize {
        examples.next_multiple_of(self.body.tile())
    }

    /// Writes `sum over s < steps of a[rows[r] + s * a_step] * b[s, :]` to row `r` of `out`, or adds it,
    /// where `b` and `out` have rows of this width, at least a tile.
    fn contract(
        &mut self,
        (a, a_step): (&[f32], usize),
        rows: impl Iterator<Item = usize>,
        (b, steps): (&[f32], usize),
        width: usize,
        (out, accumulate): (&mut [f32], bool),
    ) {
        self.rows.clear();
        self.rows.extend(rows);
        let (last, behind) = (width - self.body.tile(), width % self.body.tile());
        // What the last tile has in common with the one before it, which must not be added twice.
        let shared = last..width - behind;
        let twice = accumulate && behind > 0;
        if twice {
            self.twice.clear();
            let rows = out.chunks_exact(width).take(self.rows.len());
            rows.for_each(|row| self.twice.extend_from_slice(&row[shared.clone()]));
        }
        for tile in (0..width).step_by(self.body.tile()).map(|tile| tile.min(last)) {
            if twice && tile == last {
                let before = self.twice.chunks_exact(shared.len());
                let rows = out.chunks_exact_mut(width).zip(before);
                rows.for_each(|(row, before)| row[shared.clone()].copy_from_slice(before));
            }
            let job = Contraction {
                a,
                rows: &self.rows,
                b: &b[tile..],
                runs: &[Run { a: 0, b: 0, len: steps }],
                a_step,
                b_step: width,
                to: Places::Apart(width),
                accumulate,
            };
            self.body.contract(&job, &mut out[tile..]);
        }
    }

    /// Adds `a w` to `out`, for a weight of so many inputs and outputs.
    fn add_product(
        &mut self,
        a: Rows<'_>,
        w: &[f32],
        [inputs, outputs]: [usize; 2],
        out: &mut [f32],
    ) {
        let width = self.padded(outputs);
        let rows = (0..out.len() / width).map(|row| row * a.step);
        if width == outputs {
            return self.contract((a.values, 1), rows, (w, inputs), width, (out, true));
        }
        let mut copy = self.take(inputs * width);
        widen(w, outputs, &mut copy, width);
        self.contract((a.values, 1), rows, (&copy, inputs), width, (out, true));
        self.give(copy);
    }

    /// The sum of `g w^T` over pairs of a gradient of whole tiles of examples, and a weight of so many
    /// inputs and outputs; laid out as the gradients are.
    fn through_weights(
        &mut self,
        pairs: &[(&[f32], &[f32])],
        examples: usize,
        [inputs, outputs]: [usize; 2],
    ) -> Vec<f32> {
        let (body, tile) = (self.body, self.body.tile());
        let [before, after] = [inputs, outputs].map(|width| self.padded(width));
        let examples = self.whole(examples);
        let mut turned = self.take(tile * after);
        let mut sums = self.take(before * tile);
        let mut out = self.take(examples * before);
        // No weight leads to what is behind the inputs, and none at all to anything without pairs.
        sums[if pairs.is_empty() { 0 } else { inputs * tile }..].fill(0.0);
        let [wide, narrow] = [after, before].map(|w| Grid { size: [1, w], row: 0, pixel: tile });
        for (place, out) in out.chunks_exact_mut(tile * before).enumerate() {
            for (pair, (g, w)) in pairs.iter().enumerate() {
                body.interleave(&g[place * tile * after..][..tile * after], &wide, &mut turned);
                let rows = (0..inputs).map(|row| row * outputs);
                self.contract((w, 1), rows, (&turned, outputs), tile, (&mut sums, pair > 0));
            }
            body.separate(&sums, &narrow, out);
        }
        self.give(turned);
        self.give(sums);
        out
    }

    /// Writes the gradients of weight and bias of a layer: the sum of outer products `a^T g`, and of the
    /// rows of `grad`.
    fn gradients_of(
        &mut self,
        examples: usize,
        [inputs, outputs]: [usize; 2],
        pairs: &[(Rows<'_>, &[f32])],
        grad: Option<&[f32]>,
        to: &mut [&mut [f32]],
    ) {
        let width = self.padded(outputs);
        let mut padded = self.take(if width == outputs { 0 } else { inputs * width });
        let out = if width == outputs { &mut *to[0] } else { &mut padded[..] };
        for (pair, (a, g)) in pairs.iter().enumerate() {
            let out = (&mut *out, pair > 0);
            self.contract((a.values, a.step), 0..inputs, (g, examples), width, out);
        }
        if width != outputs && !pairs.is_empty() {
            narrow(&padded, width, to[0], outputs);
        }
        self.give(padded);
        for row in grad.into_iter().flat_map(|grad| grad.chunks_exact(width).take(examples)) {
            to[1].iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    }

    /// The gradient of the outputs in rows of at least a tile, for whole tiles of examples.
    fn spread(&mut self, lane: &Lane<'_>, grad: &[f32]) -> Vec<f32> {
        let outputs = lane.widths[lane.layers.len()];
        let width = self.padded(outputs);
        let mut spread = self.take(self.whole(lane.examples) * width);
        let (rows, behind) = spread.split_at_mut(lane.examples * width);
        widen(grad, outputs, rows, width);
        behind.fill(0.0);
        spread
    }

    /// What layer `layer` gets.
    fn input<'a>(&self, lane: &Lane<'a>, hidden: &'a Hidden, layer: usize) -> Rows<'a> {
        match layer.checked_sub(1) {
            None => Rows { values: lane.x, step: lane.widths[0] },
            Some(before) => {
                Rows { values: &hidden.0[before], step: self.padded(lane.widths[layer]) }
            }
        }
    }
}

impl Lane<'_> {
    /// Inputs and outputs of a layer.
    fn sides(&self, layer: usize) -> [usize; 2] {
        [self.widths[layer], self.widths[layer + 1]]
    }
}

/// Copies rows to rows that are wider, zeros behind them.
fn widen(from: &[f32], width: usize, to: &mut [f32], wider: usize) {
    for (from, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(wider)) {
        copy_row(from, to);
    }
}

/// Copies a row, zeros behind it.
fn copy_row(from: &[f32], to: &mut [f32]) {
    let (row, behind) = to.split_at_mut(from.len());
    row.copy_from_slice(from);
    behind.fill(0.0);
}

/// Copies rows from rows that are wider.
fn narrow(from: &[f32], wider: usize, to: &mut [f32], width: usize) {
    for (from, to) in from.chunks_exact(wider).zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&from[..width]);
    }
}

/// Writes the outputs to `y [examples, outputs]`, and returns what the gradients need.
pub fn forward(room: &mut Room, lane: &Lane<'_>, y: &mut [f32]) -> Hidden {
    let last = lane.layers.len() - 1;
    let mut hidden = Hidden(Vec::with_capacity(last));
    for (layer, [weight, bias]) in lane.layers.iter().enumerate() {
        let width = room.padded(bias.len());
        let length = lane.examples * width;
        // What stays is no larger than it must be.
        let mut out = if layer == last { room.take(length) } else { vec![0.0; length] };
        out.chunks_exact_mut(width).for_each(|row| copy_row(bias, row));
        room.add_product(room.input(lane, &hidden, layer), weight, lane.sides(layer), &mut out);
        if layer == last {
            narrow(&out, width, y, bias.len());
            room.give(out);
        } else {
            room.body.rectify(&mut out);
            hidden.0.push(out);
        }
    }
    hidden
}

/// Writes the gradients of `x`, if it is wanted, and of weight and bias of every layer to zeros, given
/// that of the output `[examples, outputs]`; returns those between the layers where `keep` asks for
/// them.
pub fn backward(
    room: &mut Room,
    lane: &Lane<'_>,
    hidden: &Hidden,
    grad: &[f32],
    (x_wanted, keep): (bool, bool),
    to: &mut [&mut [f32]],
) -> Option<Between> {
    let mut between = Vec::with_capacity(if keep { lane.layers.len() } else { 0 });
    let mut grad = room.spread(lane, grad);
    for (layer, [weight, _]) in lane.layers.iter().enumerate().rev() {
        let (sides, pairs) = (lane.sides(layer), [(room.input(lane, hidden, layer), &grad[..])]);
        room.gradients_of(lane.examples, sides, &pairs, Some(&grad), &mut to[1 + 2 * layer..]);
        let mut before = match layer > 0 || x_wanted {
            true => room.through_weights(&[(&grad, weight)], lane.examples, sides),
            false => Vec::new(),
        };
        match layer.checked_sub(1) {
            Some(below) => room.body.gate(&hidden.0[below], &mut before),
            None if x_wanted => {
                narrow(&before, room.padded(lane.widths[0]), to[0], lane.widths[0]);
            }
            None => {}
        }
        let behind = std::mem::replace(&mut grad, before);
        if keep { between.push(behind) } else { room.give(behind) }
    }
    room.give(grad);
    between.reverse();
    keep.then_some(Between(between))
}
