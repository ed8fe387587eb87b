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
    /// What the support saves for a backward pass.
    pub support: MemoryFigure,
    /// Intermediate gradients of the support, saved when its gradient is itself differentiated.
    #[serde(rename = "nested")]
    pub intermediate_grads: MemoryFigure,
    /// Tangents of what the support saves, which the derivative of its gradient computes.
    #[serde(rename = "tangents")]
    pub saved_tangents: MemoryFigure,
    /// What the queries save for a backward pass.
    pub queries: MemoryFigure,
    /// What both save in one batch; under [`Checkpointing::Segments`] of the segment that takes the
    /// most, with what others left that is of no use to it.
    #[serde(rename = "together")]
    pub joint: MemoryFigure,
    /// Under [`Checkpointing::Segments`], what goes into that segment and those before it.
    pub inputs: MemoryFigure,
    /// Gradients of the parameters before they are added up.
    #[serde(rename = "returned")]
    pub parameter_grads: MemoryFigure,
    /// Gradients of activations in the backward pass, of support and queries in one batch.
    #[serde(rename = "passing")]
    pub activation_grads: MemoryFigure,
    /// The same where they are batches of their own, of the larger one.
    #[serde(rename = "passing_apart")]
    pub activation_grads_apart: MemoryFigure,
    /// Working memory, however many tasks there are side by side.
    #[serde(rename = "working")]
    pub workspace: MemoryFigure,
    /// The largest map between two layers, of support and queries in one batch.
    #[serde(rename = "widest")]
    pub largest_map: MemoryFigure,
    /// The same where they are batches of their own.
    #[serde(rename = "widest_apart")]
    pub largest_map_apart: MemoryFigure,
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
        let stacks = stacks.map(|((support, queries), joint)| Stacks { support, queries, joint });
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
            support: elements(support.saved),
            intermediate_grads: elements(support.intermediate_grads),
            saved_tangents: elements(support.saved_tangents),
            queries: elements(queries.saved),
            joint: elements(both.saved),
            inputs: MemoryFigure::exact(0),
            parameter_grads: elements(both.parameter_grads),
            activation_grads: elements(both.activation_grads),
            activation_grads_apart: elements(
                support.activation_grads.max(queries.activation_grads),
            ),
            workspace: elements(both.workspace),
            largest_map: elements(both.largest_map),
            largest_map_apart: elements(support.largest_map.max(queries.largest_map)),
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
            (inputs, Cost { saved: graph.saved + left, ..graph })
        };
        let all = |(inputs, graph): &(u64, Cost)| {
            inputs + graph.saved + graph.parameter_grads + graph.activation_grads + graph.workspace
        };
        let (inputs, graph) = (0..segments.len()).map(at).max_by_key(all).unwrap_or_default();
        Self {
            inputs: elements(inputs),
            joint: elements(graph.saved),
            parameter_grads: elements(graph.parameter_grads),
            activation_grads: elements(graph.activation_grads),
            workspace: elements(graph.workspace),
            ..self
        }
    }

    /// Nothing is known of the network.
    pub fn unknown() -> Self {
        let unknown = MemoryFigure::unknown();
        Self {
            support: unknown,
            intermediate_grads: unknown,
            saved_tangents: unknown,
            queries: unknown,
            joint: unknown,
            inputs: unknown,
            parameter_grads: unknown,
            activation_grads: unknown,
            activation_grads_apart: unknown,
            workspace: unknown,
            largest_map: unknown,
            largest_map_apart: unknown,
            checkpointing: Checkpointing::Nothing,
            stacks: None,
        }
    }
}

/// Of f32.
fn elements(count: u64) -> MemoryFigure {
    MemoryFigure::modelled(4 * count)
}
