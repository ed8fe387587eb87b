use fewshot_kernels::Route;
use fewshot_models::{Cost, CostModel, SegmentCost};
use serde::{Deserialize, Serialize};

use super::Stacks;
use crate::hardware::{Bytes, Checkpointing, MemoryFigure};

/// One task of a meta-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskShape {
    /// Examples that it is learned from.
    pub support: usize,
    /// Examples that it is judged by.
    pub queries: usize,
    /// What an example takes, with its label.
    pub example: Bytes,
}

impl TaskShape {
    /// What a batch of so many examples takes, of what all take together.
    pub(crate) fn part(&self, amount: MemoryFigure, batch: usize) -> MemoryFigure {
        let all = self.support + self.queries;
        let bytes = u128::from(amount.bytes.0) * batch as u128 / all.max(1) as u128;
        MemoryFigure { bytes: Bytes(bytes.try_into().unwrap_or(u64::MAX)), ..amount }
    }
}

/// What the activations of one task take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activations {
    /// Kept of the support for a backward pass.
    pub support: MemoryFigure,
    /// What the support's gradient leaves when it is itself differentiated.
    pub nested: MemoryFigure,
    /// Tangents of what is kept of the support, which that gradient has on its way.
    pub tangents: MemoryFigure,
    /// Kept of the queries.
    pub queries: MemoryFigure,
    /// Kept of both in one batch; under [`Checkpointing::Segments`] of the segment that takes the
    /// most, with what others left that is of no use to it.
    pub together: MemoryFigure,
    /// Under [`Checkpointing::Segments`], what goes into that segment and those before it.
    pub inputs: MemoryFigure,
    /// Gradients of the parameters on their way to them.
    pub returned: MemoryFigure,
    /// Gradients of activations on their way back, of support and queries in one batch.
    pub passing: MemoryFigure,
    /// The same where they are batches of their own, of the larger one.
    pub passing_apart: MemoryFigure,
    /// Working memory, however many tasks there are side by side.
    pub working: MemoryFigure,
    /// The largest map between two layers, of support and queries in one batch.
    pub widest: MemoryFigure,
    /// The same where they are batches of their own.
    pub widest_apart: MemoryFigure,
    /// What of all this is computed again.
    pub checkpointing: Checkpointing,
    /// Where a task's images go through fused operations of a CPU, their stacks: buffers that one
    /// pass leaves serve the next only where they are large enough.
    pub stacks: Option<Stacks>,
}

impl Activations {
    /// By the formulas of a network, in f32, where its operations go this way. What the network has
    /// no formula for is not known.
    pub fn modelled(
        network: &impl CostModel,
        task: TaskShape,
        route: Route,
        checkpointing: Checkpointing,
    ) -> Self {
        let both = task.support + task.queries;
        let cost = |examples| match checkpointing {
            Checkpointing::Balanced => network.balanced_cost(examples, route),
            Checkpointing::Nothing | Checkpointing::Segments => Some(network.cost(examples, route)),
        };
        let (Some(support), Some(queries), Some(whole)) =
            (cost(task.support), cost(task.queries), cost(both))
        else {
            return Self { checkpointing, ..Self::unknown() };
        };
        let stack = |examples| network.stack(examples, route);
        let stacks = stack(task.support).zip(stack(task.queries)).zip(stack(both));
        let stacks =
            stacks.map(|((support, queries), together)| Stacks { support, queries, together });
        let all = Self { stacks, ..Self::of(support, queries, whole, checkpointing) };
        if checkpointing != Checkpointing::Segments {
            return all;
        }
        match network.segment_costs(both, route) {
            Some(segments) => all.by_segments(&segments),
            None => Self { checkpointing, ..Self::unknown() },
        }
    }

    fn of(support: Cost, queries: Cost, both: Cost, checkpointing: Checkpointing) -> Self {
        Self {
            support: elements(support.kept),
            nested: elements(support.nested),
            tangents: elements(support.tangents),
            queries: elements(queries.kept),
            together: elements(both.kept),
            inputs: MemoryFigure::exact(0),
            returned: elements(both.returned),
            passing: elements(both.passing),
            passing_apart: elements(support.passing.max(queries.passing)),
            working: elements(both.working),
            widest: elements(both.widest),
            widest_apart: elements(support.widest.max(queries.widest)),
            checkpointing,
            stacks: None,
        }
    }

    /// At the segment where most is there at once.
    fn by_segments(self, segments: &[SegmentCost]) -> Self {
        let at = |index: usize| {
            let (before, after) = segments.split_at(index + 1);
            let graph = before[index].graph;
            let inputs = before.iter().map(|segment| segment.inputs).sum::<u64>();
            let left = after.iter().map(|segment| segment.left).sum::<u64>();
            (inputs, Cost { kept: graph.kept + left, ..graph })
        };
        let all = |(inputs, graph): &(u64, Cost)| {
            inputs + graph.kept + graph.returned + graph.passing + graph.working
        };
        let (inputs, graph) = (0..segments.len()).map(at).max_by_key(all).unwrap_or_default();
        Self {
            inputs: elements(inputs),
            together: elements(graph.kept),
            returned: elements(graph.returned),
            passing: elements(graph.passing),
            working: elements(graph.working),
            ..self
        }
    }

    /// Nothing is known of the network.
    pub fn unknown() -> Self {
        let unknown = MemoryFigure::unknown();
        Self {
            support: unknown,
            nested: unknown,
            tangents: unknown,
            queries: unknown,
            together: unknown,
            inputs: unknown,
            returned: unknown,
            passing: unknown,
            passing_apart: unknown,
            working: unknown,
            widest: unknown,
            widest_apart: unknown,
            checkpointing: Checkpointing::Nothing,
            stacks: None,
        }
    }
}

/// Of f32.
fn elements(count: u64) -> MemoryFigure {
    MemoryFigure::modelled(4 * count)
}
