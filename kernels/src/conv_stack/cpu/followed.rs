//! Which buffers stay after passes that are only said to be made.

use std::collections::BTreeMap;
use std::mem;

use rayon::current_num_threads;

use super::plan::Plan;
use super::shape::StackShape;
use crate::cpu::body::{Body, chosen};
use crate::cpu::slots::slots;
use crate::precision::Precision;

/// The buffers that stacks leave for later calls, followed through passes without making them.
///
/// A call takes the smallest buffer that is left of at least the length it needs and at most twice
/// that, or makes one. Passes are of `lanes` stacks side by side, as many at once as there are
/// threads.
///
/// # Example
/// ```
/// use fewshot_kernels::conv_stack::cpu::{BlockShape, Followed, StackShape};
///
/// let blocks = vec![BlockShape { channels_out: 64, stride: 1, pool: true }; 4];
/// let shape = StackShape { n: 10, c: 1, h: 28, w: 28, blocks };
/// let mut buffers = Followed::default();
/// let kept = buffers.forward(&shape, 1, true);
/// let between = buffers.backward(&shape, 1, false, false);
/// buffers.leave(between);
/// buffers.leave(kept);
/// let all = buffers.floats();
/// assert!(all > shape.kept());
/// let again = buffers.forward(&shape, 1, true);
/// assert_eq!(buffers.floats(), all);
/// buffers.leave(again);
/// ```
#[derive(Debug, Default)]
pub struct Followed {
    /// How many there are of each length.
    free: BTreeMap<usize, usize>,
    all: usize,
}

/// The lengths of buffers in use.
#[derive(Debug)]
#[must_use = "buffers that are not left are in use for ever"]
pub struct InUse(Vec<usize>);

impl Followed {
    /// Floats of all buffers, in use or not.
    pub fn floats(&self) -> usize {
        self.all
    }

    /// A forward pass, and what it keeps if `keep` asks for what a backward pass needs.
    pub fn forward(&mut self, shape: &StackShape, lanes: usize, keep: bool) -> InUse {
        self.forward_by(chosen(), shape, lanes, keep)
    }

    fn forward_by(
        &mut self,
        body: &dyn Body,
        shape: &StackShape,
        lanes: usize,
        keep: bool,
    ) -> InUse {
        let pass = Pass::new(body, shape, lanes);
        // What nobody asked for is gone with its lane.
        let there = if keep { lanes } else { pass.at_once };
        let kept = self.take(times(there, pass.maps(keep)));
        let inputs = if lanes > 1 { vec![shape.input()] } else { Vec::new() };
        let used = self.take(times(pass.at_once, [inputs, pass.forward_work(1)].concat()));
        self.leave(used);
        kept
    }

    /// A backward pass; the gradient of the images where `images` asks for it. What it leaves for the
    /// passes along a direction if `keep` asks for it.
    pub fn backward(
        &mut self,
        shape: &StackShape,
        lanes: usize,
        images: bool,
        keep: bool,
    ) -> InUse {
        self.backward_by(chosen(), shape, lanes, images, keep)
    }

    fn backward_by(
        &mut self,
        body: &dyn Body,
        shape: &StackShape,
        lanes: usize,
        images: bool,
        keep: bool,
    ) -> InUse {
        let pass = Pass::new(body, shape, lanes);
        let kept = if keep { self.take(times(lanes, pass.between())) } else { InUse(Vec::new()) };
        // One lane's part of the gradient, which is all of it where there is one lane, and in tiles.
        let start = vec![pass.output(); usize::from(lanes > 1) + usize::from(!keep)];
        let mut grads = self.take(times(pass.at_once, start));
        for (k, plan) in pass.plans.iter().enumerate().rev() {
            let wanted = k > 0 || images;
            let there = wanted && (k == 0 || !keep);
            let input = if there { pass.images * plan.input_grad.image() } else { 0 };
            let inputs = self.take(times(pass.at_once, vec![input]));
            let used = self.take(pass.block_work(plan, wanted, 1));
            self.leave(used);
            self.leave(mem::replace(&mut grads, inputs));
        }
        self.leave(grads);
        kept
    }

    /// The passes along a direction of the parameters, forward and backward, whose images stand
    /// still.
    pub fn along(&mut self, shape: &StackShape, lanes: usize) {
        self.along_by(chosen(), shape, lanes);
    }

    fn along_by(&mut self, body: &dyn Body, shape: &StackShape, lanes: usize) {
        let pass = Pass::new(body, shape, lanes);
        let tangents = self.take(times(lanes, pass.tangents()));
        let used = self.take(times(pass.at_once, pass.forward_work(2)));
        self.leave(used);
        let mut grads = self.take(times(pass.at_once, vec![pass.output(); 2]));
        for (k, plan) in pass.plans.iter().enumerate().rev() {
            let input = if k > 0 { pass.images * plan.input_grad.image() } else { 0 };
            let inputs = self.take(times(pass.at_once, vec![input]));
            let used = self.take(pass.block_work(plan, k > 0, 2));
            self.leave(used);
            self.leave(mem::replace(&mut grads, inputs));
        }
        self.leave(grads);
        self.leave(tangents);
    }

    /// Gives back what a pass kept, for later ones.
    pub fn leave(&mut self, used: InUse) {
        for length in used.0 {
            *self.free.entry(length).or_default() += 1;
        }
    }

    fn take(&mut self, lengths: Vec<usize>) -> InUse {
        let lengths = lengths.into_iter().filter(|&length| length > 0);
        InUse(lengths.map(|length| self.take_one(length.next_multiple_of(16))).collect())
    }

    fn take_one(&mut self, wanted: usize) -> usize {
        let Some((&length, count)) = self.free.range_mut(wanted..=2 * wanted).next() else {
            self.all += wanted;
            return wanted;
        };
        *count -= 1;
        if *count == 0 {
            self.free.remove(&length);
        }
        length
    }
}

fn times(count: usize, lengths: Vec<usize>) -> Vec<usize> {
    lengths.repeat(count)
}

/// What passes of a stack take, as lengths of buffers of one lane unless said otherwise.
struct Pass {
    plans: Vec<Plan>,
    images: usize,
    slots: usize,
    /// Lanes that are worked on at once.
    at_once: usize,
    /// Slots of all lanes that are.
    busy: usize,
    parameters: usize,
}

impl Pass {
    fn new(body: &dyn Body, shape: &StackShape, lanes: usize) -> Self {
        let (slots, threads) = (slots(shape.n, lanes).len(), current_num_threads());
        Self {
            plans: Plan::all(shape, body.tile(), Precision::F32),
            images: shape.n,
            slots,
            at_once: lanes.min(threads),
            busy: threads.min(slots * lanes),
            parameters: shape.parameters(),
        }
    }

    /// The output, without a ring.
    fn output(&self) -> usize {
        self.images * self.plans.last().map_or(0, |plan| plan.out.image())
    }

    /// The gradients of the outputs of all blocks.
    fn between(&self) -> Vec<usize> {
        let inner = self.plans.iter().skip(1).map(|plan| self.images * plan.input_grad.image());
        inner.chain([self.output()]).collect()
    }

    /// Inputs of all blocks, the output, convolutions and parameters.
    fn maps(&self, keep: bool) -> Vec<usize> {
        let stored = |all, group| if all { self.images } else { self.slots * group };
        let input = |plan: &Plan| stored(keep || plan.recompute, plan.group) * plan.input.image();
        let inputs = self.plans.iter().map(input);
        let last = self.plans.last().map(|plan| stored(keep, 1) * plan.out.image());
        let convs = self.plans.iter().filter(|plan| !plan.recompute);
        let convs = convs.map(|plan| self.images * plan.conv.image());
        inputs.chain(last).chain(convs).chain([self.parameters]).collect()
    }

    fn tangents(&self) -> Vec<usize> {
        let inputs = self.plans.iter().skip(1).map(|plan| self.images * plan.input.image());
        let last = self.plans.last().map(|plan| self.slots * plan.out.image());
        let convs = self.plans.iter().map(|plan| self.images * plan.conv.image());
        inputs.chain(last).chain(convs).chain([self.parameters]).collect()
    }

    /// Prepared weights, strips, and room for transforms, of convolutions of so many terms.
    fn forward_work(&self, terms: usize) -> Vec<usize> {
        let weights = self.plans.iter().flat_map(|plan| vec![plan.forward.prepared(); terms]);
        let strip = self.plans.iter().map(Plan::strip_len).max().unwrap_or(0);
        let rooms = self.plans.iter().flat_map(|plan| plan.forward.scratch_lengths(terms));
        let slot = rooms.chain([strip]).collect();
        weights.chain(times(self.slots, slot)).collect()
    }

    /// Of a block on the way back, of all lanes that are worked on at once: parts of the gradient of
    /// the weight, the turned weights, and what the slots have that are worked on.
    fn block_work(&self, plan: &Plan, wanted: bool, terms: usize) -> Vec<usize> {
        let packed = plan.forward.prepared();
        let turned = if wanted { vec![plan.turned.prepared(); terms] } else { Vec::new() };
        let weights = [vec![packed * self.slots, packed], turned].concat();
        let delta = match wanted || plan.forward.winograd.is_some() {
            true => plan.group.min(self.images.div_ceil(self.slots)) * plan.delta.image(),
            false => plan.delta.plane(),
        };
        let own = [vec![delta; terms], vec![plan.strip_len(); terms]].concat();
        let turned = if wanted { plan.turned.scratch_lengths(terms) } else { Vec::new() };
        let slot = [own, plan.forward.scratch_lengths(1), turned].concat();
        [times(self.at_once, weights), times(self.busy, slot)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::super::backward::backward;
    use super::super::forward::{self, Planned, Saved, Statistics};
    use super::super::shape::BlockShape;
    use super::super::tangent::{Direction, backward_along, forward_along};
    use super::super::tests::parts;
    use super::*;
    use crate::cpu::body::bodies;
    use crate::cpu::buffers::{kept_floats, release_buffers};

    fn forward(body: &'static dyn Body, shape: &StackShape, keep: bool) -> Option<Saved> {
        let (x, params) = (vec![0.5; shape.input()], vec![0.5; shape.parameters()]);
        let how = (Statistics::Batch, 1e-5);
        let planned = Planned::by(body, shape, Precision::F32);
        forward::forward(&planned, &x, &params, how, forward::Pass { keep, lanes: 1 }).saved
    }

    /// Floats that are said to stay and that stay after passes of stacks, and then along a direction.
    fn passes(body: &'static dyn Body) -> [[usize; 2]; 2] {
        let block = |pool| BlockShape { channels_out: 20, stride: 1, pool };
        let blocks = vec![block(false), block(true)];
        let stack = |(c, side)| StackShape { n: 10, c, h: side, w: side, blocks: blocks.clone() };
        let stacks = [(3, 40), (20, 20), (20, 10)].map(stack);
        release_buffers();
        let mut followed = Followed::default();
        for shape in &stacks {
            forward(body, shape, false);
            let used = followed.forward_by(body, shape, 1, false);
            followed.leave(used);
        }
        let of = |shape: &StackShape| {
            let saved = forward(body, shape, true).expect("kept, as asked");
            let dy = vec![0.5; shape.output().iter().product()];
            (saved, [vec![0.5; shape.parameters()], vec![0.0; shape.parameters()]], dy)
        };
        for (index, shape) in stacks.iter().enumerate().rev() {
            let (saved, [params, mut gradients], dy) = of(shape);
            let to = &mut parts(shape, &mut gradients);
            backward(shape, &saved, &params, &dy, (index > 0, false), to);
            let kept = followed.forward_by(body, shape, 1, true);
            let between = followed.backward_by(body, shape, 1, index > 0, false);
            [kept, between].into_iter().for_each(|used| followed.leave(used));
        }
        let plain = [followed.floats(), kept_floats()];

        let shape = &stacks[1];
        let (saved, [params, mut gradients], dy) = of(shape);
        let to = &mut parts(shape, &mut gradients);
        let (_, between) = backward(shape, &saved, &params, &dy, (false, true), to);
        let direction = Direction { images: None, parameters: &params };
        let tangent = forward_along(&saved, &params, direction).saved;
        let between = between.expect("kept, as asked");
        let moves = (&*params, &tangent);
        backward_along(&saved, &params, moves, (&between, Some(&*dy)), false, to);
        drop((saved, tangent, between));
        let kept = followed.forward_by(body, shape, 1, true);
        let between = followed.backward_by(body, shape, 1, false, true);
        followed.along_by(body, shape, 1);
        [kept, between].into_iter().for_each(|used| followed.leave(used));
        [plain, [followed.floats(), kept_floats()]]
    }

    #[test]
    fn buffers_that_stay_are_those_that_were_followed() {
        for body in bodies() {
            let near = |[said, found]: [usize; 2]| (said as f64 / found as f64 - 1.0).abs() < 0.1;
            let mut last = [[0; 2]; 2];
            // Tests beside this one leave buffers too, and take some.
            let alone = (0..20).any(|_| {
                last = passes(body);
                last.into_iter().all(near)
            });
            assert!(alone, "{last:?} said and found by {}", body.name());
        }
        release_buffers();
    }
}
