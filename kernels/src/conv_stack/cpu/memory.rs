//! Memory of the stack's passes, in floats.

use super::plan::Plan;
use super::shape::StackShape;
use crate::cpu::instruction_set::{InstructionSet, chosen};
use crate::cpu::slots::slots;
use crate::precision::Precision;

impl StackShape {
    /// Floats that a forward pass saves for its backward pass: the input of every block with its
    /// ring, the output of the last, every convolution that is not computed again, the parameters,
    /// and the statistics with their affine map; channels in whole tiles of this processor.
    ///
    /// # Panics
    /// As [`output`](Self::output).
    pub fn saved_floats(&self) -> usize {
        self.saved_floats_by(chosen())
    }

    fn saved_floats_by(&self, body: &dyn InstructionSet) -> usize {
        let plans = Plan::all(self, body.tile(), Precision::F32);
        let maps =
            |plan: &Plan| plan.input.image() + if plan.recompute { 0 } else { plan.conv.image() };
        let last = plans.last().map_or(0, |plan| plan.out.image());
        let image = last + plans.iter().map(maps).sum::<usize>();
        let statistics = plans.iter().map(|plan| 4 * plan.padded()).sum::<usize>();
        self.n * image + self.parameters() + statistics
    }

    /// Floats of working memory of both passes, without the gradient of the images; it is reused by the
    /// next call: prepared weights, transforms, the gradients of all maps, and that of the weight for
    /// every part of the batch.
    ///
    /// # Panics
    /// As [`output`](Self::output).
    pub fn workspace_floats(&self) -> usize {
        let plans = Plan::all(self, chosen().tile(), Precision::F32);
        let parts = slots(self.n, 1).len();
        let last = plans.last().map_or(0, |plan| plan.out.channels * plan.out.h * plan.out.w);
        let maps = plans.iter().skip(1).map(|plan| plan.input_grad.image()).sum::<usize>();
        let forward = plans
            .iter()
            .map(|plan| plan.forward.prepared() + parts * plan.forward.scratch_floats());
        // Parts that are worked on at once share the rest.
        let weights = plans.iter().map(|plan| parts * plan.forward.prepared()).max();
        self.n * (last + maps) + forward.sum::<usize>() + weights.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward::{Pass, Planned, Saved, Statistics, forward};
    use super::super::shape::BlockShape;
    use super::*;
    use crate::cpu::instruction_set::bodies;

    fn saved(shape: &StackShape, body: &'static dyn InstructionSet) -> Saved {
        let (x, params) = (vec![0.5; shape.input()], vec![0.5; shape.parameters()]);
        let planned = Planned::by(body, shape, Precision::F32);
        let pass = Pass { keep: true, lanes: 1 };
        let output = forward(&planned, &x, &params, (Statistics::Batch, 1e-5), pass);
        output.saved.expect("kept, as asked")
    }

    fn floats(saved: &Saved, n: usize) -> usize {
        let maps = saved.inputs.iter().chain(&saved.convs);
        let norms = saved.norms.iter();
        let norms = norms.map(|n| n.mean.len() + n.inv_std.len() + n.scale.len() + n.shift.len());
        maps.map(|images| images.group(0..n).len()).sum::<usize>() + norms.sum::<usize>()
    }

    #[test]
    fn saved_floats_are_what_a_pass_saves() {
        let block = |channels_out, stride, pool| BlockShape { channels_out, stride, pool };
        let cases = [
            (1, vec![block(64, 1, true), block(64, 1, true)]),
            (5, vec![block(20, 2, false), block(5, 1, true)]),
        ];
        for (c, blocks) in cases {
            let shape = StackShape { n: 3, c, h: 14, w: 9, blocks };
            for body in bodies() {
                let found = floats(&saved(&shape, body), shape.n) + shape.parameters();
                assert_eq!(shape.saved_floats_by(body), found, "{shape:?}");
            }
        }
    }
}
