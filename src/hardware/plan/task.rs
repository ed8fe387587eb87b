use fewshot_kernels::Route;
use fewshot_models::{Cost, CostModel, SegmentCost};

use super::Stacks;
use crate::hardware::{Bytes, Checkpointing, MemoryFigure, Provenance};

/// One task of a meta-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What the activations of one task take, in elements of f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Activations {
    /// The support as a batch of its own.
    pub support: Cost,
    /// The queries as a batch of their own.
    pub queries: Cost,
    /// Both in one batch; under [`Checkpointing::Segments`] the segment that takes the most, with what
    /// others left that is of no use to it.
    pub joint: Cost,
    /// Under [`Checkpointing::Segments`], what goes into that segment and those before it.
    pub inputs: u64,
    /// How all this is known.
    pub source: Provenance,
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
        network: &(impl CostModel + ?Sized),
        task: TaskShape,
        route: Route,
        checkpointing: Checkpointing,
    ) -> Self {
        let both = task.support + task.queries;
        let cost = |examples| network.cost(examples, route);
        let stack = |examples| network.stack(examples, route);
        let stacks = || {
            let [support, queries, joint] = [task.support, task.queries, both].map(stack);
            let precision = network.precision();
            Some(Stacks { support: support?, queries: queries?, joint: joint?, precision })
        };
        let all = Self {
            support: cost(task.support),
            queries: cost(task.queries),
            joint: cost(both),
            inputs: 0,
            source: Provenance::Modelled,
            checkpointing,
            stacks: stacks(),
        };
        let known = match checkpointing {
            Checkpointing::Nothing => Some(all),
            // Balanced checkpointing leaves fused operations alone, which keep what they need themselves.
            Checkpointing::Balanced => all.stacks.is_some().then_some(all),
            Checkpointing::Segments => {
                network.segment_costs(both, route).map(|segments| all.by_segments(&segments))
            }
        };
        known.unwrap_or_else(|| Self { checkpointing, ..Self::unknown() })
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
        let joint = Cost { largest_map: self.joint.largest_map, ..graph };
        Self { inputs, joint, ..self }
    }

    /// Nothing is known of the network.
    pub fn unknown() -> Self {
        Self {
            support: Cost::default(),
            queries: Cost::default(),
            joint: Cost::default(),
            inputs: 0,
            source: Provenance::Unknown,
            checkpointing: Checkpointing::Nothing,
            stacks: None,
        }
    }

    /// What so many elements take.
    pub(crate) fn figure(&self, elements: u64) -> MemoryFigure {
        MemoryFigure { bytes: Bytes(4 * elements), source: self.source }
    }
}
