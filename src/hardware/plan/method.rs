use fewshot_kernels::Route;
use serde::{Deserialize, Serialize};

use super::{Lines, MemoryPlanner};
use crate::hardware::{Checkpointing, MemoryFigure};

/// Way in which a network learns, as far as time and memory go. `steps` are inner steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Method {
    /// Prototypical networks and their like: support and queries of every task go through the network
    /// together and nothing adapts. The graphs of all tasks are there at once, or under
    /// [`Checkpointing::Segments`] a segment of one.
    ProtoNet,
    /// MAML of the second order by the graph of the whole inner loop, and its relatives that adapt
    /// everything.
    Maml { steps: usize },
    /// The same by the chain, with the graph of one inner step at a time.
    MamlChain { steps: usize },
    /// MAML of the first order.
    FirstOrder { steps: usize },
    /// Reptile: all parameters adapt to support and queries in mini-batches of `batch` examples, by
    /// Adam.
    Reptile { steps: usize, batch: usize },
    /// ANIL: the module `head` adapts.
    Anil { steps: usize },
}

/// Lines of the method, beside those that are counted.
pub(super) fn lines(planner: &MemoryPlanner, tasks: usize) -> Lines {
    let activations = &planner.activations;
    let graphs = graphs(planner, tasks);
    vec![
        ("fast weights", fast_weights(planner, planner.live(tasks) as u64)),
        ("saved maps", activations.figure(saved_maps(planner)).times(graphs)),
        ("workspace", activations.figure(workspace(planner, graphs))),
    ]
}

/// Tasks whose maps are there at once.
fn graphs(planner: &MemoryPlanner, tasks: usize) -> u64 {
    match planner.activations.checkpointing {
        // Segments are those of one task after the other.
        Checkpointing::Segments => tasks.min(1) as u64,
        Checkpointing::Nothing | Checkpointing::Balanced => planner.live(tasks) as u64,
    }
}

/// Parameters of `live` tasks at the start and after every step that is stored, their gradients, and the state of
/// the inner rule. Gradients before they are added up are among them.
fn fast_weights(planner: &MemoryPlanner, live: u64) -> MemoryFigure {
    let profile = &planner.profile;
    let all = profile.trainable();
    let start = profile.bytes().times(u64::from(live > 1));
    let moving = |copies: usize| start + all.times(copies as u64);
    let weights = match planner.method {
        Method::ProtoNet => all,
        // Without a graph only the last values and those at hand are stored.
        Method::FirstOrder { steps } => moving(steps.min(2) + 1).times(live),
        // A gradient's change by the graph of a step is one copy more.
        Method::Maml { steps } | Method::MamlChain { steps } => moving(steps + 2).times(live),
        // Adam's two means and the second one at the start; of the batch that, and the sum of the ends.
        Method::Reptile { steps, .. } => moving(steps.min(2) + 4).times(live) + all.times(2),
        Method::Anil { steps } => {
            // The body has a gradient by the support and one by the queries.
            profile.trainable_in("head").times((steps as u64 + 2) * live) + all.times(2)
        }
    };
    weights + MemoryFigure::modelled(0)
}

/// Elements of one task's maps.
fn saved_maps(planner: &MemoryPlanner) -> u64 {
    let activations = &planner.activations;
    let [support, queries] = [activations.support, activations.queries];
    let graph = support.saved + support.intermediate_grads;
    match planner.method {
        Method::ProtoNet => activations.joint.saved,
        Method::Maml { steps } => steps as u64 * graph + support.tangents + queries.saved,
        Method::MamlChain { .. } => graph + support.tangents + queries.saved,
        Method::FirstOrder { .. } => match activations.route {
            // Buffers of the support serve the queries if they are large enough, but not twice as large.
            Route::Host(_) if !(queries.saved..=2 * queries.saved).contains(&support.saved) => {
                support.saved + queries.saved
            }
            _ => support.saved.max(queries.saved),
        },
        Method::Reptile { batch, .. } => planner.task.part(activations.joint.saved, batch),
        Method::Anil { .. } => support.saved + queries.saved,
    }
}

/// Elements of working memory.
fn workspace(planner: &MemoryPlanner, live: u64) -> u64 {
    let joint = planner.activations.joint;
    match (planner.method, planner.activations.route) {
        (Method::ProtoNet, _) => joint.workspace,
        _ if live <= 1 => joint.workspace,
        // All tasks are one batch of the body.
        (Method::Anil { .. }, Route::Host(_)) => {
            joint.lane_workspace + joint.intermediate_grads * (live - 1)
        }
        (_, Route::Host(_)) => joint.lane_workspace * live.min(rayon::current_num_threads() as u64),
        _ => joint.lane_workspace * live,
    }
}

/// The largest tensor: of the images of all tasks, of maps between layers, which have all tasks that
/// are side by side, and of parameters, of which each of these has its own where they adapt.
pub(super) fn largest(planner: &MemoryPlanner, tasks: usize) -> MemoryFigure {
    let (activations, task) = (&planner.activations, planner.task);
    let map = match planner.method {
        Method::ProtoNet => activations.joint.largest_map,
        Method::Reptile { batch, .. } => task.part(activations.joint.largest_map, batch),
        _ => activations.support.largest_map.max(activations.queries.largest_map),
    };
    let map = activations.figure(map).times(graphs(planner, tasks));
    let copies = if planner.method == Method::ProtoNet { 1 } else { planner.live(tasks) };
    let parameter = planner.profile.largest_trainable().times(copies as u64);
    let images = task.support.max(task.queries).saturating_mul(tasks) as u64;
    let images = MemoryFigure::exact(task.example.0).times(images);
    let bytes = map.bytes.max(parameter.bytes).max(images.bytes);
    MemoryFigure { bytes, ..map }
}
