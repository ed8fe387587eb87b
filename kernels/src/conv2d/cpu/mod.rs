//! CPU body of the convolution and of its two gradients, which keep the size up to the stride.
//!
//! Images are taken to the tiles of [`crate::cpu`] and back a group at a time, so that a group
//! stays in the cache between its layouts.

mod images;
mod weight;

#[cfg(test)]
mod tests;

use super::shape::{ConvShape, Role};
use crate::cpu::convolution::Convolution;
use crate::cpu::filter::Filter;
use crate::cpu::instruction_set::{InstructionSet, chosen};
use crate::cpu::layout::Map;

/// Whether the body computes convolutions of this shape.
pub fn serves(shape: &ConvShape) -> bool {
    let ConvShape { kernel, stride, padding, .. } = *shape;
    let window = matches!((kernel, padding), (3, 1) | (1, 0)) && matches!(stride, 1 | 2);
    let pixels = shape.n * shape.c * shape.o * shape.h * shape.w;
    window && pixels > 0 && shape.lanes == 1
}

/// The derivative of `<dy, conv(x, w)>` by the operand `wanted`, given the two whose roles follow.
///
/// # Panics
/// If `shape` is not served, or a length does not fit it.
pub fn derivative(wanted: Role, shape: &ConvShape, operands: [&[f32]; 2]) -> Vec<f32> {
    derivative_with(chosen(), wanted, shape, operands)
}

fn derivative_with(
    body: &dyn InstructionSet,
    wanted: Role,
    shape: &ConvShape,
    [first, second]: [&[f32]; 2],
) -> Vec<f32> {
    assert!(serves(shape), "{shape:?}");
    let length = |role| shape.of(role).iter().product::<usize>();
    assert_eq!(first.len(), length(wanted.next()), "the first operand of {wanted:?}, {shape:?}");
    assert_eq!(second.len(), length(wanted.next().next()), "the second of {wanted:?}, {shape:?}");
    let plan = Plan::new(shape, body.tile());
    match wanted {
        Role::Output => plan.output(body, first, second),
        Role::Input => plan.input(body, first, second),
        Role::Weight => plan.weight(body, first, second),
    }
}

/// The layouts of one convolution.
struct Plan {
    shape: ConvShape,
    filter: Filter,
    /// The input.
    from: Map,
    /// The output.
    to: Map,
    /// The gradient of the output.
    delta: Map,
    /// The gradient of the input.
    input: Map,
}

impl Plan {
    fn new(shape: &ConvShape, tile: usize) -> Self {
        let ConvShape { c, h, w, o, kernel, padding: ring, .. } = *shape;
        let [height, width] = shape.output_size();
        let map = |channels, lane, [h, w]: [usize; 2], ring| Map { channels, lane, h, w, ring };
        Self {
            shape: *shape,
            filter: Filter { o, i: c, side: kernel },
            from: map(c, tile.min(c), [h, w], ring),
            to: map(o, tile, [height, width], 0),
            delta: map(o, tile, [height, width], ring),
            input: map(c, tile, [h, w], 0),
        }
    }

    /// From the input to the output.
    fn forward(&self) -> Convolution {
        Convolution::new(&self.from, self.to, self.shape.stride, self.shape.n)
    }
}
