//! Memory of the stack's passes, in floats.

use fewshot_simd::amx::Amx;
use fewshot_simd::slots::slots;
use rayon::current_num_threads;

use super::plan::Plan;
use super::shape::StackShape;
use crate::environment::chosen;
use crate::precision::Precision;

/// All of these are of this processor in `f32`, with channels in whole tiles, and panic as
/// [`output`](Self::output).
impl StackShape {
    fn pass(&self) -> StackPass {
        StackPass::new(chosen().tile(), (Precision::F32, None), self, [1, 1])
    }

    /// Floats that a forward pass saves for its backward pass: the input of every block with its
    /// ring, the output of the last, every convolution that is not computed again, the parameters
    /// without biases, and the statistics with their affine map.
    pub fn saved_floats(&self) -> usize {
        self.pass().saved()
    }

    /// Floats that the `jvp` for tangents of the parameters saves for the `jvp_of_vjp`: the tangents of
    /// the inputs of all blocks but the first, of all convolutions, of the statistics with their affine
    /// map, and of the weights.
    pub fn saved_tangent_floats(&self) -> usize {
        self.pass().saved_tangent()
    }

    /// Floats that the backward pass saves for the `jvp_of_vjp`: the gradients of the outputs of all
    /// blocks.
    pub fn intermediate_grad_floats(&self) -> usize {
        self.pass().intermediate_grads().into_iter().sum()
    }

    /// Floats of working memory of both passes, without the gradient of the images; it is reused by the
    /// next call: prepared weights, transforms, the gradients of all maps, and that of the weight for
    /// every part of the batch.
    pub fn workspace_floats(&self) -> usize {
        let pass = self.pass();
        let forward = pass.plans.iter().map(|plan| {
            let transforms: usize = plan.forward.scratch_lengths(1).iter().sum();
            prepared(plan).unwrap_or(0) + pass.slots * transforms
        });
        // Parts that are worked on at once share the rest.
        let weights =
            pass.plans.iter().map(|plan| pass.slots * plan.forward.gradient_floats()).max();
        let maps = pass.plans.iter().skip(1).map(|plan| plan.input_grad.image()).sum::<usize>();
        let last = pass.plans.last().map_or(0, |plan| plan.out.dense());
        self.n * (last + maps) + forward.sum::<usize>() + weights.unwrap_or(0)
    }
}

/// Floats of a weight in another form than packed, where the convolution takes one.
fn prepared(plan: &Plan) -> Option<usize> {
    (!plan.forward.is_direct()).then(|| plan.forward.prepared())
}

/// The lengths of buffers that the passes of a stack allocate, for one lane except where noted.
pub struct StackPass {
    pub plans: Vec<Plan>,
    pub images: usize,
    pub slots: usize,
    /// Lanes that run at once.
    pub at_once: usize,
    /// Slots of all lanes that run at once.
    busy: usize,
}

impl StackPass {
    /// For tiles of `tile` channels and stacks of so many lanes and ghost batches.
    pub fn new(
        tile: usize,
        precision: (Precision, Option<Amx>),
        shape: &StackShape,
        [lanes, batches]: [usize; 2],
    ) -> Self {
        let (slots, threads) = (slots(shape.n, lanes, batches).len(), current_num_threads());
        Self {
            plans: Plan::all(shape, tile, precision),
            images: shape.n,
            slots,
            at_once: lanes.min(threads),
            busy: threads.min(slots * lanes),
        }
    }

    /// The output, without a ring.
    pub fn output(&self) -> usize {
        self.images * self.plans.last().map_or(0, |plan| plan.out.image())
    }

    /// The gradients of the outputs of all blocks.
    pub fn intermediate_grads(&self) -> Vec<usize> {
        let inner = self.plans.iter().skip(1).map(|plan| self.images * plan.input_grad.image());
        inner.chain([self.output()]).collect()
    }

    /// Inputs of all blocks, the output, convolutions and weights.
    pub fn maps(&self, keep: bool) -> Vec<usize> {
        let stored = |all, group| if all { self.images } else { self.slots * group };
        let input = |plan: &Plan| stored(keep || plan.recompute, plan.group) * plan.input.image();
        let inputs = self.plans.iter().map(input);
        let last = self.plans.last().map(|plan| stored(keep, 1) * plan.out.image());
        let convs = self.plans.iter().filter(|plan| !plan.recompute);
        let convs = convs.map(|plan| self.images * plan.conv.image());
        inputs.chain(last).chain(convs).chain(self.weights()).collect()
    }

    /// Tangents of the inputs of all blocks but the first, of so many outputs, of all convolutions and
    /// of the weights.
    pub fn tangents(&self, outputs: usize) -> Vec<usize> {
        let inputs = self.plans.iter().skip(1).map(|plan| self.images * plan.input.image());
        let last = self.plans.last().map(|plan| outputs * plan.out.image());
        let convs = self.plans.iter().map(|plan| self.images * plan.conv.image());
        inputs.chain(last).chain(convs).chain(self.weights()).collect()
    }

    /// The packed weights.
    fn weights(&self) -> impl Iterator<Item = usize> {
        self.plans.iter().map(|plan| plan.forward.packed())
    }

    pub fn saved(&self) -> usize {
        let vectors: usize = self.plans.iter().map(|plan| 2 * plan.block.c_out).sum();
        self.maps(true).into_iter().sum::<usize>() + vectors + self.statistics()
    }

    pub fn saved_tangent(&self) -> usize {
        self.tangents(0).into_iter().sum::<usize>() + self.statistics()
    }

    /// The statistics of all blocks with their affine map, or their tangents.
    fn statistics(&self) -> usize {
        self.plans.iter().map(|plan| 4 * plan.padded()).sum()
    }

    /// Prepared weights, strips and transforms of convolutions of so many terms.
    pub fn forward_work(&self, terms: usize) -> Vec<usize> {
        let weights = self.plans.iter().filter_map(prepared).flat_map(|floats| vec![floats; terms]);
        let strip = self.plans.iter().map(Plan::strip_len).max().unwrap_or(0);
        let transforms = self.plans.iter().flat_map(|plan| plan.forward.scratch_lengths(terms));
        let slot: Vec<_> = transforms.chain([strip]).collect();
        weights.chain(slot.repeat(self.slots)).collect()
    }

    /// Of a block in the backward pass, of all lanes that run at once: parts of the gradient of the
    /// weight, the turned weights, and the working memory of the slots that run.
    pub fn block_work(&self, plan: &Plan, wanted: bool, terms: usize) -> Vec<usize> {
        let packed = plan.forward.gradient_floats();
        let turned = if wanted { vec![plan.turned.prepared(); terms] } else { Vec::new() };
        let weights = [vec![packed * self.slots, packed], turned].concat();
        let delta = match wanted || !plan.forward.is_direct() {
            true => plan.group.min(self.images.div_ceil(self.slots)) * plan.delta.image(),
            false => plan.delta.plane(),
        };
        let own = [vec![delta; terms], vec![plan.strip_len(); terms]].concat();
        let turned = if wanted { plan.turned.scratch_lengths(terms) } else { Vec::new() };
        let slot = [own, plan.forward.scratch_lengths(1), turned].concat();
        [weights.repeat(self.at_once), slot.repeat(self.busy)].concat()
    }
}
