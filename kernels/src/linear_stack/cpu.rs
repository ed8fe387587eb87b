//! One lane of the layers over slices.
//!
//! Activations and their gradients lie in rows, those of layer after layer. Nothing is packed; a
//! gradient goes back through the transpose of the weight.

use std::ops::Range;

use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::product::{Product, Start};

use crate::environment::chosen;

/// The operands of a lane.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    /// Rows of `x`.
    pub examples: usize,
    /// Inputs of the first layer, then outputs of every layer.
    pub widths: &'a [usize],
    /// `x [examples, inputs]`, then weight `[inputs, outputs]` and bias `[outputs]` of every layer.
    pub operands: &'a [&'a [f32]],
}

/// The operands of the tangents of the gradients, for one lane.
#[derive(Clone, Copy)]
pub struct Tangents<'a> {
    /// Tangents of `x`, and weight and bias of every layer; `None` is zero.
    pub operands: &'a [Option<&'a [f32]>],
    /// The tangent of the hidden activations, by [`jvp`].
    pub hidden_tangent: &'a [f32],
    /// The gradients of all layers' outputs, by [`backward`].
    pub layer_grads: &'a [f32],
}

/// Up to two pairs of factors.
type Pairs<'a> = [Option<[&'a [f32]; 2]>; 2];

impl<'a> Lane<'a> {
    fn weight(&self, layer: usize) -> &'a [f32] {
        self.operands[1 + 2 * layer]
    }

    fn bias(&self, layer: usize) -> &'a [f32] {
        self.operands[2 + 2 * layer]
    }

    /// The last layer.
    fn last(&self) -> usize {
        self.widths.len() - 2
    }

    /// Inputs and outputs of a layer.
    fn sides(&self, layer: usize) -> [usize; 2] {
        [self.widths[layer], self.widths[layer + 1]]
    }

    /// Where a layer's outputs lie among those of all layers.
    fn outputs(&self, layer: usize) -> Range<usize> {
        let behind: usize = self.widths[1..=layer].iter().sum();
        let from = self.examples * behind;
        from..from + self.examples * self.widths[layer + 1]
    }

    /// The input of a layer.
    fn input<'b>(&self, hidden: &'b [f32], layer: usize) -> &'b [f32]
    where
        'a: 'b,
    {
        match layer.checked_sub(1) {
            None => self.operands[0],
            Some(before) => &hidden[self.outputs(before)],
        }
    }

    /// The tangent of the input of a layer.
    fn input_tangent<'b>(
        &self,
        tangents: &[Option<&'b [f32]>],
        hidden_tangent: &'b [f32],
        layer: usize,
    ) -> Option<&'b [f32]> {
        match layer.checked_sub(1) {
            None => tangents[0],
            Some(before) => Some(&hidden_tangent[self.outputs(before)]),
        }
    }
}

/// Working memory that lanes use in turn, and the vector instructions that they run on.
pub struct Workspace {
    body: &'static dyn InstructionSet,
    /// The transpose of a weight.
    turned: Vec<f32>,
    /// The outputs of all layers, or their gradients.
    all: Vec<f32>,
}

impl Workspace {
    pub fn new() -> Self {
        Self { body: chosen(), turned: Vec::new(), all: Vec::new() }
    }

    /// Writes the sum of `start` and products `a b`, of which there may be none, in rows of this width.
    fn add_up(&self, pairs: Pairs<'_>, width: usize, mut start: Start<'_>, out: &mut [f32]) {
        if pairs == [None; 2] {
            let nothing = Product { a: &[], a_row: 0, a_step: 0, b: &[], width, start };
            return self.body.product(&nothing, out);
        }
        for [a, b] in pairs.into_iter().flatten() {
            let job = Product { a, a_row: b.len() / width, a_step: 1, b, width, start };
            self.body.product(&job, out);
            start = Start::Before;
        }
    }

    /// Writes the sum of `g w^T` over pairs of a gradient and a weight of so many inputs and outputs,
    /// if there are any.
    fn through_weights(
        &mut self,
        pairs: Pairs<'_>,
        [inputs, outputs]: [usize; 2],
        out: &mut [f32],
    ) {
        let mut start = Start::Zeros;
        for [g, w] in pairs.into_iter().flatten() {
            self.turned.resize(w.len(), 0.0);
            self.body.transposed(w, outputs, &mut self.turned);
            let b = &self.turned;
            let job = Product { a: g, a_row: outputs, a_step: 1, b, width: inputs, start };
            self.body.product(&job, out);
            start = Start::Before;
        }
    }

    /// Writes the gradient of a layer's weight, the sum of `a^T g` over pairs of its input and the
    /// gradient of its outputs, if there are any.
    fn weight_gradient(&self, pairs: Pairs<'_>, [inputs, outputs]: [usize; 2], to: &mut [f32]) {
        let mut start = Start::Zeros;
        for [a, g] in pairs.into_iter().flatten() {
            let job = match outputs {
                // A column lies as a row does, and a wide row takes fewer steps than many narrow ones.
                1 => Product { a: g, a_row: 0, a_step: 1, b: a, width: inputs, start },
                _ => Product { a, a_row: 1, a_step: inputs, b: g, width: outputs, start },
            };
            self.body.product(&job, to);
            start = Start::Before;
        }
    }

    /// Writes the gradient of a layer's bias, given that of its outputs.
    fn bias_gradient(&self, grad: &[f32], outputs: usize, to: &mut [f32]) {
        let (a, start) = (&[1.0], Start::Zeros);
        let sum = Product { a, a_row: 0, a_step: 0, b: grad, width: outputs, start };
        self.body.product(&sum, to);
    }
}

/// Writes the outputs to `y [examples, outputs]`, and the hidden activations to `hidden` if they are
/// to be kept.
pub fn forward(
    workspace: &mut Workspace,
    lane: Lane<'_>,
    hidden: Option<&mut [f32]>,
    y: &mut [f32],
) {
    let mut own = std::mem::take(&mut workspace.all);
    let hidden = hidden.unwrap_or_else(|| {
        own.resize(lane.outputs(lane.last()).start, 0.0);
        &mut own
    });
    for layer in 0..=lane.last() {
        let [_, outputs] = lane.sides(layer);
        let (before, from) = hidden.split_at_mut(lane.outputs(layer).start);
        let pair = [lane.input(before, layer), lane.weight(layer)];
        let last = layer == lane.last();
        let out = if last { &mut *y } else { &mut from[..lane.examples * outputs] };
        workspace.add_up([Some(pair), None], outputs, Start::Row(lane.bias(layer)), out);
        if !last {
            workspace.body.rectify(out);
        }
    }
    workspace.all = own;
}

/// Writes the tangent of the outputs `[examples, outputs]` to `y`, and that of the hidden activations to
/// `hidden_tangent`.
pub fn jvp(
    workspace: &Workspace,
    lane: Lane<'_>,
    hidden: &[f32],
    tangents: &[Option<&[f32]>],
    hidden_tangent: &mut [f32],
    y: &mut [f32],
) {
    for layer in 0..=lane.last() {
        let [_, outputs] = lane.sides(layer);
        let (before, from) = hidden_tangent.split_at_mut(lane.outputs(layer).start);
        let last = layer == lane.last();
        let out = if last { &mut *y } else { &mut from[..lane.examples * outputs] };
        let pairs = [
            lane.input_tangent(tangents, before, layer).map(|input| [input, lane.weight(layer)]),
            tangents[1 + 2 * layer].map(|weight| [lane.input(hidden, layer), weight]),
        ];
        let start = tangents[2 + 2 * layer].map_or(Start::Zeros, Start::Row);
        workspace.add_up(pairs, outputs, start, out);
        if !last {
            workspace.body.gate(&hidden[lane.outputs(layer)], out);
        }
    }
}

impl<'a> Tangents<'a> {
    /// The products that tangents add to those of a layer's gradient: of its weight, the tangent of the input
    /// times the gradient of the outputs, and of its input, that times the tangent of the weight.
    fn pairs(&self, lane: Lane<'_>, layer: usize) -> Pairs<'a> {
        let grad = &self.layer_grads[lane.outputs(layer)];
        let input = lane.input_tangent(self.operands, self.hidden_tangent, layer);
        let weight = self.operands[1 + 2 * layer];
        [input.map(|input| [input, grad]), weight.map(|weight| [grad, weight])]
    }
}

/// Writes the gradients of `x`, and of weight and bias of every layer, given that of the output
/// `[examples, outputs]`; and those of all outputs before ReLU to `layer_grads` if they are to be kept.
/// `to` is zeros, and empty for an `x` whose gradient is not wanted.
///
/// Along tangents it writes the tangents of these, given that of the gradient of the output; `None` is
/// zero.
pub fn backward(
    workspace: &mut Workspace,
    lane: Lane<'_>,
    (hidden, tangents): (&[f32], Option<Tangents<'_>>),
    grad: Option<&[f32]>,
    layer_grads: Option<&mut [f32]>,
    to: &mut [&mut [f32]],
) {
    let mut own = std::mem::take(&mut workspace.all);
    let all = layer_grads.unwrap_or_else(|| {
        own.resize(lane.outputs(lane.last()).end, 0.0);
        &mut own
    });
    let mut has_grad = grad.is_some();
    if let Some(grad) = grad {
        all[lane.outputs(lane.last())].copy_from_slice(grad);
    }
    for layer in (0..=lane.last()).rev() {
        let sides @ [_, outputs] = lane.sides(layer);
        let (before, from) = all.split_at_mut(lane.outputs(layer).start);
        let grad = has_grad.then_some(&from[..lane.examples * outputs]);
        let [input_pair, weight_pair] = match &tangents {
            Some(tangents) => tangents.pairs(lane, layer),
            None => [None; 2],
        };
        let pairs = [input_pair, grad.map(|grad| [lane.input(hidden, layer), grad])];
        workspace.weight_gradient(pairs, sides, to[1 + 2 * layer]);
        if let Some(grad) = grad {
            workspace.bias_gradient(grad, outputs, to[2 + 2 * layer]);
        }
        let pairs = [grad.map(|grad| [grad, lane.weight(layer)]), weight_pair];
        has_grad = pairs != [None; 2];
        match layer.checked_sub(1) {
            Some(below) if has_grad => {
                let out = &mut before[lane.outputs(below)];
                workspace.through_weights(pairs, sides, out);
                workspace.body.gate(&hidden[lane.outputs(below)], out);
            }
            None if !to[0].is_empty() => workspace.through_weights(pairs, sides, to[0]),
            _ => {}
        }
    }
    workspace.all = own;
}
