use fewshot_kernels::Route;
use fewshot_models::{Cost, CostModel};

use crate::hardware::{Bytes, Checkpointing, MemoryFigure, Provenance};

/// One task of a meta-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskShape {
    /// Examples that it is learned from.
    pub support: usize,
    /// Examples that it is judged by.
    pub queries: usize,
    /// Memory of an example with its label.
    pub example: Bytes,
}

impl TaskShape {
    /// Share of `amount`, which is that of all examples, for a batch of so many of them.
    pub(crate) fn part(&self, amount: u64, batch: usize) -> u64 {
        let all = (self.support + self.queries).max(1);
        let part = u128::from(amount) * batch as u128 / all as u128;
        part.try_into().unwrap_or(u64::MAX)
    }
}

/// Activations of one task, in elements of f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Activations {
    /// Cost of the support as a batch of its own.
    pub support: Cost,
    /// Cost of the queries as a batch of their own.
    pub queries: Cost,
    /// Cost of both in one batch. Under [`Checkpointing::Segments`] its saved maps are the inputs of all
    /// segments and the graphs that there are at once.
    pub joint: Cost,
    /// Source of these costs.
    pub source: Provenance,
    /// Activations that the backward pass recomputes.
    pub checkpointing: Checkpointing,
    /// Route of operations. A CPU's fused operations keep their buffers for the next call.
    pub route: Route,
}

impl Activations {
    /// Activations by the formulas of a network, in f32, where its operations go this way; unknown where
    /// the network has no formula.
    pub fn modelled(
        network: &(impl CostModel + ?Sized),
        task: TaskShape,
        route: Route,
        checkpointing: Checkpointing,
    ) -> Self {
        let both = task.support + task.queries;
        let [support, queries, joint] =
            [task.support, task.queries, both].map(|examples| match examples {
                0 => Cost::default(),
                _ => network.cost(examples, route),
            });
        let source = Provenance::Modelled;
        let all = Self { support, queries, joint, source, checkpointing, route };
        let known = match (checkpointing, route) {
            // Balanced checkpointing leaves fused operations alone, which keep what they need themselves.
            (Checkpointing::Nothing, _) | (Checkpointing::Balanced, Route::Host(_)) => Some(all),
            (Checkpointing::Balanced, _) => None,
            (Checkpointing::Segments, _) => {
                network.segment_costs(both, route).map(|segments| all.by_segments(&segments))
            }
        };
        known.unwrap_or_else(|| Self { checkpointing, ..Self::unknown(route) })
    }

    fn by_segments(self, segments: &[Cost]) -> Self {
        let inputs: u64 = segments.iter().map(|segment| segment.inputs).sum();
        let graphs = segments.iter().map(|segment| segment.saved);
        let graphs = match self.route {
            // A CPU's buffers of one segment are too small for those before it.
            Route::Host(_) => graphs.sum(),
            _ => graphs.max().unwrap_or(0),
        };
        let workspace = segments.iter().map(|segment| segment.workspace).max().unwrap_or(0);
        Self { joint: Cost { saved: inputs + graphs, workspace, ..self.joint }, ..self }
    }

    /// Activations of a network without formulas.
    pub fn unknown(route: Route) -> Self {
        let [support, queries, joint] = [Cost::default(); 3];
        let (source, checkpointing) = (Provenance::Unknown, Checkpointing::Nothing);
        Self { support, queries, joint, source, checkpointing, route }
    }

    /// Memory of so many elements.
    pub(crate) fn figure(&self, elements: u64) -> MemoryFigure {
        MemoryFigure { bytes: Bytes(elements.saturating_mul(4)), source: self.source }
    }
}
