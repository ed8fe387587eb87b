//! Memory of the stack's passes on this processor, in floats.

use fewshot_simd::slots::slots;

use super::plan::Plan;
use super::shape::StackShape;
use crate::environment::chosen;
use crate::precision::Precision;

/// All of these panic as [`output`](Self::output).
impl StackShape {
    fn plans(&self) -> Vec<Plan> {
        Plan::all(self, chosen().tile(), (Precision::F32, None))
    }

    /// Floats that a forward pass saves for its backward pass: the input of every block with its
    /// ring, the output of the last, every convolution that is not computed again, and the weights.
    pub fn saved_floats(&self) -> usize {
        let plans = self.plans();
        let blocks = plans.iter().map(|plan| {
            let conv = if plan.recompute { 0 } else { plan.conv.image() };
            self.n * (plan.input.image() + conv) + plan.forward.packed()
        });
        let output = plans.last().map_or(0, |plan| self.n * plan.out.image());
        blocks.sum::<usize>() + output
    }

    /// Floats that a backward pass saves where it is differentiated itself: the gradients of the
    /// outputs of all blocks.
    pub fn intermediate_grad_floats(&self) -> usize {
        let plans = self.plans();
        let inner = plans.iter().skip(1).map(|plan| plan.input_grad.image());
        self.n * (inner.sum::<usize>() + plans.last().map_or(0, |plan| plan.out.image()))
    }

    /// Floats of working memory of both passes, for each of the tasks that run at once when there are
    /// `lanes` of them: prepared weights, transforms, the gradients of all maps, and that of the
    /// largest weight for every part of the batch. The next call reuses it.
    pub fn workspace_floats(&self, lanes: usize) -> usize {
        let (plans, parts) = (self.plans(), slots(self.n, lanes, 1).len());
        let blocks = plans.iter().map(|plan| {
            let prepared = if plan.forward.is_direct() { 0 } else { 2 * plan.forward.prepared() };
            prepared + parts * plan.forward.scratch_lengths(1).iter().sum::<usize>()
        });
        let weights = plans.iter().map(|plan| parts * plan.forward.gradient_floats()).max();
        let output = plans.last().map_or(0, |plan| self.n * plan.out.image());
        blocks.sum::<usize>() + weights.unwrap_or(0) + output + self.intermediate_grad_floats()
    }
}
