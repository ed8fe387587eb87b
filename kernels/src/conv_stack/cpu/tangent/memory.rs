//! Memory of the passes of tangents, in floats.

use super::super::plan::Plan;
use super::super::shape::StackShape;
use crate::cpu::instruction_set::{InstructionSet, chosen};
use crate::precision::Precision;

impl StackShape {
    /// Floats that the `jvp` for tangents of the parameters saves for the `jvp_of_vjp`: the tangents of
    /// the inputs of all blocks but the first, of all convolutions, of the statistics with their affine
    /// map, and of the parameters; channels in whole tiles of this processor.
    ///
    /// # Panics
    /// As [`output`](Self::output).
    pub fn saved_tangent_floats(&self) -> usize {
        self.saved_tangent_floats_by(chosen())
    }

    /// Floats that the backward pass saves for the `jvp_of_vjp`: the gradients of the outputs of all
    /// blocks; channels in whole tiles of this processor.
    ///
    /// # Panics
    /// As [`output`](Self::output).
    pub fn intermediate_grad_floats(&self) -> usize {
        self.intermediate_grad_floats_by(chosen())
    }

    fn intermediate_grad_floats_by(&self, body: &dyn InstructionSet) -> usize {
        let plans = Plan::all(self, body.tile(), Precision::F32);
        let inner = plans.iter().skip(1).map(|plan| plan.input_grad.image()).sum::<usize>();
        self.n * (inner + plans.last().map_or(0, |plan| plan.out.image()))
    }

    fn saved_tangent_floats_by(&self, body: &dyn InstructionSet) -> usize {
        let plans = Plan::all(self, body.tile(), Precision::F32);
        let inputs = plans.iter().skip(1).map(|plan| plan.input.image());
        let image = inputs.chain(plans.iter().map(|plan| plan.conv.image())).sum::<usize>();
        let statistics = plans.iter().map(|plan| 4 * plan.padded()).sum::<usize>();
        self.n * image + self.parameters() + statistics
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::backward::backward;
    use super::super::super::forward::{Pass, Planned, Statistics, forward};
    use super::super::super::shape::BlockShape;
    use super::super::super::tests::parts;
    use super::super::{InputTangents, SavedTangent, jvp};
    use super::*;
    use crate::cpu::instruction_set::bodies;

    fn floats(saved: &SavedTangent, shape: &StackShape) -> usize {
        // Of the last, the output, only images at hand are there.
        let maps = saved.inputs[..shape.blocks.len()].iter().chain(&saved.convs);
        let norms = saved.norms.iter();
        let norms = norms.map(|n| n.mean.len() + n.inv_std.len() + n.scale.len() + n.shift.len());
        maps.map(|images| images.group(0..shape.n).len()).sum::<usize>() + norms.sum::<usize>()
    }

    #[test]
    fn tangents_are_as_large_as_computed() {
        let block = |channels_out, stride, pool| BlockShape { channels_out, stride, pool };
        let cases = [
            (1, vec![block(64, 1, true), block(64, 1, true)]),
            (5, vec![block(20, 2, false), block(5, 1, true)]),
        ];
        for (c, blocks) in cases {
            let shape = StackShape { n: 3, c, h: 14, w: 9, blocks };
            let (x, params) = (vec![0.5; shape.input()], vec![0.5; shape.parameters()]);
            for body in bodies() {
                let how = (Statistics::Batch, 1e-5);
                let planned = Planned::by(body, &shape, Precision::F32);
                let output = forward(&planned, &x, &params, how, Pass { keep: true, lanes: 1 });
                let saved = output.saved.expect("kept, as asked");
                let mut gradients = vec![0.0; params.len()];
                let to = &mut parts(&shape, &mut gradients);
                let dy = vec![0.5; shape.output().iter().product()];
                let (_, intermediate_grads) =
                    backward(&shape, &saved, &params, &dy, (false, true), to);
                let intermediate_grads = intermediate_grads.expect("kept, as asked").0;
                let floats_of_grads =
                    intermediate_grads.iter().map(|images| images.group(0..shape.n).len());
                assert_eq!(
                    shape.intermediate_grad_floats_by(body),
                    floats_of_grads.sum::<usize>(),
                    "{shape:?}"
                );
                let tangents = InputTangents { images: None, parameters: &params };
                let saved_tangent = jvp(&saved, &params, tangents).saved;
                let wanted = floats(&saved_tangent, &shape) + shape.parameters();
                assert_eq!(shape.saved_tangent_floats_by(body), wanted, "{shape:?}");
            }
        }
    }
}
