use fewshot_kernels::Precision;
use fewshot_kernels::conv_stack::cpu::{BufferPoolModel, InUse, StackShape};

use super::InnerGraphs;
use crate::hardware::MemoryFigure;

/// The fused stacks that a task's images go through on a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// Of the support.
    pub support: StackShape,
    /// Of the queries.
    pub queries: StackShape,
    /// Of both in one batch.
    pub joint: StackShape,
    /// What they compute in.
    pub precision: Precision,
}

/// Tasks side by side, and steps, beyond which memory is taken to grow by the same for each more.
const MANY: usize = 16;

impl Stacks {
    /// Memory in the pool of buffers after an inner loop over `live` tasks, which adapts the stack's own
    /// parameters.
    pub(super) fn inner(&self, live: usize, steps: usize, graphs: InnerGraphs) -> MemoryFigure {
        let floats = |live, steps| self.inner_loop_floats(live, steps, graphs);
        of_tasks(live, |live| beyond_many(steps, |steps| floats(live, steps)))
    }

    /// Memory in the pool of buffers after `live` tasks that share the stack, the graph of the support's
    /// features under that of the queries.
    pub(super) fn features(&self, live: usize) -> MemoryFigure {
        of_tasks(live, |live| self.features_floats(live))
    }

    fn features_floats(&self, live: usize) -> usize {
        let of_all = |stack: &StackShape| StackShape { n: live * stack.n, ..stack.clone() };
        let [support, queries] = [&self.support, &self.queries].map(of_all);
        let buffers = BufferPoolModel::new(self.precision).with_ghost_batches(live);
        settled(Passes { buffers, live: 1 }, |passes| {
            let kept = passes.forward(&support);
            passes.forward_backward(&queries);
            passes.backward(&support, kept);
        })
    }

    /// Memory in the pool of buffers after an inner loop of steps on `batch` of the examples each, whose
    /// displacement is the outer gradient (Reptile), and the queries at its end.
    pub(super) fn displacement(&self, live: usize, steps: usize, batch: usize) -> MemoryFigure {
        let stack = StackShape { n: batch, ..self.joint.clone() };
        let step = |passes: &mut Passes| {
            (0..steps.min(2)).for_each(|_| passes.forward_backward(&stack));
            passes.forward_without_graph(&self.queries);
        };
        of_tasks(live, |live| settled(self.passes(live), step))
    }

    /// Memory in the pool of buffers after `live` graphs of support and queries, one after the other, with a
    /// joint backward pass.
    pub(super) fn one_by_one(&self, live: usize) -> MemoryFigure {
        let step = |passes: &mut Passes, live: usize| {
            let graphs: Vec<_> = (0..live).map(|_| passes.forward(&self.joint)).collect();
            graphs.into_iter().for_each(|kept| passes.backward(&self.joint, kept));
        };
        of_tasks(live, |live| settled(self.passes(1), |passes| step(passes, live)))
    }

    fn passes(&self, live: usize) -> Passes {
        Passes { buffers: BufferPoolModel::new(self.precision), live }
    }

    fn inner_loop_floats(&self, live: usize, steps: usize, graphs: InnerGraphs) -> usize {
        settled(self.passes(live), |passes| match graphs {
            InnerGraphs::Features => unreachable!("no inner step goes through the stack"),
            InnerGraphs::None => {
                (0..steps.min(2)).for_each(|_| passes.forward_backward(&self.support));
                passes.forward_backward(&self.queries);
            }
            InnerGraphs::One => {
                (1..steps.min(2)).for_each(|_| passes.forward_backward(&self.support));
                for step in 0..steps.min(2) {
                    let graph = passes.gradient_with_graph(&self.support);
                    if step == 0 {
                        passes.forward_backward(&self.queries);
                    }
                    passes.differentiate_graph(&self.support, graph);
                }
            }
            InnerGraphs::Every => {
                let graphs = (0..steps).map(|_| passes.gradient_with_graph(&self.support));
                let graphs = graphs.collect::<Vec<_>>();
                passes.forward_backward(&self.queries);
                let back = graphs.into_iter().rev();
                back.for_each(|kept| passes.differentiate_graph(&self.support, kept));
            }
        })
    }
}

/// The floats of all buffers after two meta-steps: in the order in which one leaves its buffers,
/// they may not serve the next.
fn settled(mut passes: Passes, step: impl Fn(&mut Passes)) -> usize {
    step(&mut passes);
    step(&mut passes);
    passes.buffers.floats()
}

/// The memory of `live` tasks, by the floats of fewer beyond [`MANY`].
fn of_tasks(live: usize, floats: impl Fn(usize) -> usize) -> MemoryFigure {
    MemoryFigure::modelled(4 * beyond_many(live, floats) as u64)
}

/// The floats of `count` tasks or steps, by those of fewer beyond [`MANY`].
fn beyond_many(count: usize, floats: impl Fn(usize) -> usize) -> usize {
    let few = floats(count.min(MANY));
    let each = if count > MANY { few.saturating_sub(floats(MANY / 2)) / (MANY / 2) } else { 0 };
    few + count.saturating_sub(MANY) * each
}

/// Passes of `live` tasks side by side.
struct Passes {
    buffers: BufferPoolModel,
    live: usize,
}

impl Passes {
    /// A forward pass without a graph.
    fn forward_without_graph(&mut self, stack: &StackShape) {
        let outputs = self.buffers.forward(stack, self.live, false);
        self.buffers.release(outputs);
    }

    /// An inner gradient whose graph is kept.
    fn gradient_with_graph(&mut self, stack: &StackShape) -> Vec<InUse> {
        vec![self.forward(stack), self.buffers.backward(stack, self.live, false, true)]
    }

    /// The backward pass through the graph of an inner gradient.
    fn differentiate_graph(&mut self, stack: &StackShape, kept: Vec<InUse>) {
        self.buffers.hvp(stack, self.live);
        kept.into_iter().for_each(|kept| self.buffers.release(kept));
    }

    fn forward_backward(&mut self, stack: &StackShape) {
        let kept = self.forward(stack);
        self.backward(stack, kept);
    }

    fn forward(&mut self, stack: &StackShape) -> InUse {
        self.buffers.forward(stack, self.live, true)
    }

    /// A backward pass that keeps nothing.
    fn backward(&mut self, stack: &StackShape, kept: InUse) {
        let gradients = self.buffers.backward(stack, self.live, false, false);
        self.buffers.release(gradients);
        self.buffers.release(kept);
    }
}

#[cfg(test)]
mod tests {
    use fewshot_kernels::Route;
    use fewshot_models::{Conv4Config, CostModel};

    use super::*;

    fn stacks(queries: usize) -> Stacks {
        let config = Conv4Config::omniglot_strided();
        let stack = |examples| config.stack(examples, Route::Host("any")).expect("a fused stack");
        let precision = Precision::F32;
        Stacks { support: stack(5), queries: stack(queries), joint: stack(5 + queries), precision }
    }

    fn bytes(live: usize, steps: usize, graphs: InnerGraphs) -> u64 {
        stacks(15).inner(live, steps, graphs).bytes.0
    }

    #[test]
    fn a_chain_of_many_steps_takes_what_two_do() {
        assert!(bytes(2, 1, InnerGraphs::None) < bytes(2, 1, InnerGraphs::One));
        assert_eq!(bytes(2, 2, InnerGraphs::One), bytes(2, 50, InnerGraphs::One));
        assert_eq!(bytes(2, 1, InnerGraphs::One), bytes(2, 1, InnerGraphs::Every));
        let support = stacks(15).support;
        let kept = 4 * 2 * (support.saved_floats() + support.intermediate_grad_floats());
        // A step takes buffers that are larger than it needs, and the next makes those anew: up to a
        // quarter more, by the width of vectors. By which of them it finds, a step takes up to a
        // thirtieth more or less than others; many take what the ninth to the sixteenth tell.
        let grown = bytes(2, 8, InnerGraphs::Every) - bytes(2, 1, InnerGraphs::Every);
        let more = grown as f64 / 7.0;
        assert!((1.0..1.3).contains(&(more / kept as f64)), "{more} of {kept}");
        let exact = 4.0 * stacks(15).inner_loop_floats(2, 40, InnerGraphs::Every) as f64;
        let extrapolated = bytes(2, 40, InnerGraphs::Every) as f64;
        assert!((extrapolated / exact - 1.0).abs() < 0.005, "{extrapolated} for {exact}");
    }

    #[test]
    fn what_queries_leave_serves_where_it_is_large_enough() {
        let chain = |queries| stacks(queries).inner(1, 1, InnerGraphs::One).bytes.0;
        let [same, three_times] = [chain(5), chain(15)];
        let kept = |queries| 4 * stacks(queries).queries.saved_floats() as u64;
        assert!(three_times - same > kept(15) - kept(5), "{same} and {three_times}");
    }

    #[test]
    fn a_shared_stack_has_no_passes_along_a_direction() {
        assert!(stacks(15).features(2).bytes.0 < bytes(2, 1, InnerGraphs::One));
    }

    #[test]
    fn many_tasks_are_counted_on_from_fewer() {
        for graphs in [InnerGraphs::None, InnerGraphs::One, InnerGraphs::Every] {
            let extrapolated = bytes(48, 2, graphs) as f64;
            let exact = 4.0 * stacks(15).inner_loop_floats(48, 2, graphs) as f64;
            assert!(
                (extrapolated / exact - 1.0).abs() < 0.05,
                "{graphs:?}: {extrapolated} for {exact}"
            );
        }
        let extrapolated = stacks(15).features(48).bytes.0 as f64;
        let exact = 4.0 * stacks(15).features_floats(48) as f64;
        assert!((extrapolated / exact - 1.0).abs() < 0.05, "{extrapolated} for {exact}");
    }
}
