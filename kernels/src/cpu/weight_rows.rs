//! The direct gradient of a convolution's weight.

use super::contract::{Contraction, RowOffsets, Run};
use super::instruction_set::InstructionSet;
use super::layout::Map;

/// The maps that a weight's gradient is taken from, row by row.
pub struct WeightRows<'a> {
    /// The convolution's input.
    pub from: &'a Map,
    /// The gradient of its output.
    pub delta: &'a Map,
    /// Offset of every tap in the input, in the order of the packed weight.
    pub taps: &'a [usize],
    /// Stride of the convolution.
    pub stride: usize,
    /// Pixels in a row of the output.
    pub columns: usize,
}

impl WeightRows<'_> {
    /// Adds to one tile of the packed weight's gradient what `rows` rows of the outputs of adjacent
    /// images contribute, or replaces it if they are the first; `input` and `delta` start at the first
    /// of them.
    pub fn add(
        &self,
        body: &dyn InstructionSet,
        input: &[f32],
        delta: &[f32],
        (images, rows): (usize, usize),
        (weight, first): (&mut [f32], bool),
    ) {
        let run = |(image, row)| Run {
            a: image * self.from.image() + row * self.stride * self.from.row(),
            b: image * self.delta.image() + row * self.delta.row(),
            len: self.columns,
        };
        let all = (0..images).flat_map(|image| (0..rows).map(move |row| (image, row)));
        let runs: Vec<Run> = all.map(run).collect();
        let job = Contraction {
            a: input,
            rows: self.taps,
            b: delta,
            runs: &runs,
            a_step: self.stride * self.from.lane,
            b_step: self.delta.lane,
            to: RowOffsets::Strided(self.delta.lane),
            accumulate: !first,
        };
        body.contract(&job, weight);
    }
}
