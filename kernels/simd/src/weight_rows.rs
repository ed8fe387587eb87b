//! The gradient of a convolution's weight.

use super::contract::{Contraction, RowOffsets, Run};
use super::convolution::{Algorithm, Convolution};
use super::instruction_set::InstructionSet;
use super::layout::{Map, strips};
use super::winograd::Scratch;

impl Convolution {
    /// Adds to the gradient of the weight what adjacent images contribute, given the gradients
    /// of their outputs in the map `delta`, or replaces it if they are the first.
    pub fn weight(
        &self,
        body: &dyn InstructionSet,
        inputs: &[f32],
        (delta, deltas): (Map, &[f32]),
        (weight, first): (&mut [f32], bool),
        scratch: &mut Option<Scratch>,
    ) {
        match (&self.algorithm, scratch) {
            (Algorithm::Amx(amx), Some(scratch)) => {
                return amx.weight(inputs, (delta, deltas), (weight, first), scratch);
            }
            (Algorithm::Winograd(winograd), Some(scratch)) => {
                return winograd.weight(body, inputs, (delta, deltas), (weight, first), scratch);
            }
            _ => {}
        }
        let images = inputs.len() / self.from.image();
        for (tile, weight) in weight.chunks_exact_mut(self.tile_floats()).enumerate() {
            for rows in strips(self.out.h, self.out.w) {
                let input = &inputs[rows.start * self.stride * self.from.row()..];
                let deltas = &deltas[delta.start(tile, rows.start)..];
                let weight = (&mut *weight, first && rows.start == 0);
                self.weight_rows(body, input, (delta, deltas), (images, rows.len()), weight);
            }
        }
    }

    /// Adds to one tile of the packed weight's gradient what `rows` rows of the outputs of adjacent
    /// images contribute, or replaces it if they are the first; `input` and `deltas` start at the first
    /// of them.
    pub fn weight_rows(
        &self,
        body: &dyn InstructionSet,
        input: &[f32],
        (delta, deltas): (Map, &[f32]),
        (images, rows): (usize, usize),
        (weight, first): (&mut [f32], bool),
    ) {
        let run = |(image, row)| Run {
            a: image * self.from.image() + row * self.stride * self.from.row(),
            b: image * delta.image() + row * delta.row(),
            len: self.out.w,
        };
        let all = (0..images).flat_map(|image| (0..rows).map(move |row| (image, row)));
        let runs: Vec<Run> = all.map(run).collect();
        let job = Contraction {
            a: input,
            rows: &self.offsets,
            b: deltas,
            runs: &runs,
            a_step: self.stride * self.from.lane,
            b_step: delta.lane,
            to: RowOffsets::Strided(delta.lane),
            accumulate: !first,
        };
        body.contract(&job, weight);
    }
}
