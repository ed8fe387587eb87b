//! A model of the pool of buffers: how much memory it holds after given passes, without running them.

use std::collections::BTreeMap;
use std::mem;

use fewshot_simd::amx::Amx;
use fewshot_simd::instruction_set::InstructionSet;

use super::memory::StackPass;
use super::shape::StackShape;
use crate::environment::chosen;
use crate::precision::Precision;

/// The pool of working memory that fused stacks reuse, simulated: its methods allocate and release the
/// lengths that the passes would, and compute nothing.
///
/// An allocation takes the smallest free buffer of at least its length and at most twice that, or
/// makes a new one. Passes are of `lanes` stacks side by side, as many at once as there are threads.
///
/// # Example
/// ```
/// use fewshot_kernels::Precision;
/// use fewshot_kernels::conv_stack::cpu::{BlockShape, BufferPoolModel, StackShape};
///
/// let blocks = vec![BlockShape { channels_out: 64, stride: 1, pool: true }; 4];
/// let shape = StackShape { n: 10, c: 1, h: 28, w: 28, blocks };
/// let mut buffers = BufferPoolModel::new(Precision::F32);
/// let saved = buffers.forward(&shape, 1, true);
/// let intermediate_grads = buffers.backward(&shape, 1, false, false);
/// buffers.release(intermediate_grads);
/// buffers.release(saved);
/// let all = buffers.floats();
/// assert!(all > shape.saved_floats());
/// let again = buffers.forward(&shape, 1, true);
/// assert_eq!(buffers.floats(), all);
/// buffers.release(again);
/// ```
#[derive(Debug)]
pub struct BufferPoolModel {
    /// Channels in a tile.
    tile: usize,
    precision: (Precision, Option<Amx>),
    ghost_batches: usize,
    /// Number of free buffers of each length.
    free: BTreeMap<usize, usize>,
    floats: usize,
}

/// The lengths of buffers in use.
#[derive(Debug)]
#[must_use = "buffers that are not released stay in use"]
pub struct InUse(Vec<usize>);

impl BufferPoolModel {
    /// Empty, for stacks of this precision on this processor.
    pub fn new(precision: Precision) -> Self {
        Self::by(chosen(), precision)
    }

    /// With a given body.
    pub(super) fn by(body: &dyn InstructionSet, precision: Precision) -> Self {
        let precision = (precision, body.amx());
        let (tile, free) = (body.tile(), BTreeMap::new());
        Self { tile, precision, ghost_batches: 1, free, floats: 0 }
    }

    /// With the images of a stack in so many batches with moments of their own.
    pub fn with_ghost_batches(self, ghost_batches: usize) -> Self {
        Self { ghost_batches, ..self }
    }

    fn pass(&self, shape: &StackShape, lanes: usize) -> StackPass {
        StackPass::new(self.tile, self.precision, shape, [lanes, self.ghost_batches])
    }

    /// Floats of all buffers, in use or not.
    pub fn floats(&self) -> usize {
        self.floats
    }

    /// A forward pass. Returns what it saves: for a backward pass if `keep` is set, else its output.
    pub fn forward(&mut self, shape: &StackShape, lanes: usize, keep: bool) -> InUse {
        let pass = self.pass(shape, lanes);
        // What is not kept is released with its lane.
        let there = if keep { lanes } else { pass.at_once };
        let saved = self.allocate(pass.maps(keep).repeat(there));
        let inputs = if lanes > 1 { vec![shape.input()] } else { Vec::new() };
        let used = self.allocate([inputs, pass.forward_work(1)].concat().repeat(pass.at_once));
        self.release(used);
        saved
    }

    /// A backward pass, with the gradient of the images if `images` is set. Returns the intermediate
    /// gradients that it saves for a Hessian-vector product if `keep` is set.
    pub fn backward(
        &mut self,
        shape: &StackShape,
        lanes: usize,
        images: bool,
        keep: bool,
    ) -> InUse {
        let pass = self.pass(shape, lanes);
        let grads = if keep { pass.intermediate_grads() } else { Vec::new() };
        let saved = self.allocate(grads.repeat(lanes));
        // One lane's part of the gradient, which is all of it where there is one lane, and in tiles.
        let outputs = usize::from(lanes > 1) + usize::from(!keep);
        self.blocks(&pass, outputs, (images, keep), 1);
        saved
    }

    /// A Hessian-vector product for tangents of the parameters: `jvp`, then `jvp_of_vjp`.
    pub fn hvp(&mut self, shape: &StackShape, lanes: usize) {
        let pass = self.pass(shape, lanes);
        let tangents = self.allocate(pass.tangents(pass.slots).repeat(lanes));
        let used = self.allocate(pass.forward_work(2).repeat(pass.at_once));
        self.release(used);
        self.blocks(&pass, 2, (false, false), 2);
        self.release(tangents);
    }

    /// Back through all blocks, from gradients of the size of so many `outputs`, in sums of so many
    /// `terms`; gradients of the blocks' inputs that are `kept` are elsewhere.
    fn blocks(
        &mut self,
        pass: &StackPass,
        outputs: usize,
        (images, kept): (bool, bool),
        terms: usize,
    ) {
        let mut grads = self.allocate(vec![pass.output(); outputs * pass.at_once]);
        for (k, plan) in pass.plans.iter().enumerate().rev() {
            let wanted = k > 0 || images;
            let there = wanted && (k == 0 || !kept);
            let input = if there { pass.images * plan.input_grad.image() } else { 0 };
            let inputs = self.allocate(vec![input; pass.at_once]);
            let used = self.allocate(pass.block_work(plan, wanted, terms));
            self.release(used);
            self.release(mem::replace(&mut grads, inputs));
        }
        self.release(grads);
    }

    /// Returns what a pass saved to the pool.
    pub fn release(&mut self, used: InUse) {
        for length in used.0 {
            *self.free.entry(length).or_default() += 1;
        }
    }

    fn allocate(&mut self, lengths: Vec<usize>) -> InUse {
        let lengths = lengths.into_iter().filter(|&length| length > 0);
        InUse(lengths.map(|length| self.allocate_one(length.next_multiple_of(16))).collect())
    }

    fn allocate_one(&mut self, wanted: usize) -> usize {
        let Some((&length, count)) = self.free.range_mut(wanted..=2 * wanted).next() else {
            self.floats += wanted;
            return wanted;
        };
        *count -= 1;
        if *count == 0 {
            self.free.remove(&length);
        }
        length
    }
}
