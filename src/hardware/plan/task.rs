use fewshot_kernels::Route;
use fewshot_models::{Cost, CostModel};
use serde::{Deserialize, Serialize};

use crate::hardware::{Bytes, Sourced};

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

/// What the activations of one task take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activations {
    /// Kept of the support for a backward pass.
    pub support: Sourced,
    /// Kept of the queries.
    pub queries: Sourced,
    /// Kept of both in one batch.
    pub together: Sourced,
    /// Gradients of the parameters on their way to them.
    pub returned: Sourced,
    /// Gradients of activations on their way back, of the largest of these.
    pub passing: Sourced,
    /// Working memory, however many tasks there are side by side.
    pub working: Sourced,
}

impl Activations {
    /// By the formulas of a network, in f32, where its operations go this way.
    pub fn modelled(network: &impl CostModel, task: TaskShape, route: Route) -> Self {
        let cost = |examples| network.cost(examples, route);
        let kept = |Cost { kept, .. }: Cost| Sourced::modelled(4 * kept);
        let both = cost(task.support + task.queries);
        Self {
            support: kept(cost(task.support)),
            queries: kept(cost(task.queries)),
            together: kept(both),
            returned: Sourced::modelled(4 * both.returned),
            passing: Sourced::modelled(4 * both.passing),
            working: Sourced::modelled(4 * both.working),
        }
    }

    /// Nothing is known of the network.
    pub fn unknown() -> Self {
        let unknown = Sourced::unknown();
        let [support, queries, together, returned, passing, working] = [unknown; 6];
        Self { support, queries, together, returned, passing, working }
    }
}
