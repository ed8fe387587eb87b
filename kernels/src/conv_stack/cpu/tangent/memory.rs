//! What the tangents take of memory, in floats.

use super::super::plan::Plan;
use super::super::shape::StackShape;
use crate::cpu::body::{Body, chosen};
use crate::precision::Precision;

impl StackShape {
    /// Floats that a pass along a direction of the parameters leaves for the backward pass along it:
    /// the tangents of the inputs of all blocks but the first, of all convolutions, and of the
    /// statistics with their affine map, and the direction; channels in whole tiles of this processor.
    ///
    /// # Panics
    /// As [`output`](Self::output).
    pub fn tangents(&self) -> usize {
        self.tangents_by(chosen())
    }

    /// Floats that the backward pass leaves for the one along a direction: the gradients of the outputs
    /// of all blocks; channels in whole tiles of this processor.
    ///
    /// # Panics
    /// As [`output`](Self::output).
    pub fn between(&self) -> usize {
        self.between_by(chosen())
    }

    fn between_by(&self, body: &dyn Body) -> usize {
        let plans = Plan::all(self, body.tile(), Precision::F32);
        let inner = plans.iter().skip(1).map(|plan| plan.input_grad.image()).sum::<usize>();
        self.n * (inner + plans.last().map_or(0, |plan| plan.out.image()))
    }

    fn tangents_by(&self, body: &dyn Body) -> usize {
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
    use super::super::{Direction, SavedTangent, forward_along};
    use super::*;
    use crate::cpu::body::bodies;

    fn floats(saved: &SavedTangent, shape: &StackShape) -> usize {
        // Of the last, the output, only images at hand are there.
        let maps = saved.inputs[..shape.blocks.len()].iter().chain(&saved.convs);
        let norms = saved.norms.iter();
        let norms = norms.map(|n| n.mean.len() + n.inv_std.len() + n.scale.len() + n.shift.len());
        maps.map(|images| images.group(0..shape.n).len()).sum::<usize>() + norms.sum::<usize>()
    }

    #[test]
    fn tangents_are_as_large_as_is_said() {
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
                let (_, between) = backward(&shape, &saved, &params, &dy, (false, true), to);
                let between = between.expect("kept, as asked").0;
                let floats_between = between.iter().map(|images| images.group(0..shape.n).len());
                assert_eq!(shape.between_by(body), floats_between.sum::<usize>(), "{shape:?}");
                let direction = Direction { images: None, parameters: &params };
                let tangent = forward_along(&saved, &params, direction).saved;
                let wanted = floats(&tangent, &shape) + shape.parameters();
                assert_eq!(shape.tangents_by(body), wanted, "{shape:?}");
            }
        }
    }
}
