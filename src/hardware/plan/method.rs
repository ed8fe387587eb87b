use serde::{Deserialize, Serialize};

use super::{Lines, MemoryPlanner};
use crate::hardware::{Checkpointing, MemoryFigure};

/// How a network learns, as far as time and memory go. `steps` are inner steps.
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

/// Graphs of inner steps that an outer gradient has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InnerGraphs {
    /// None: the first order.
    None,
    /// That of one step, made again from its fast weights: the chain.
    One,
    /// Those of all steps: the unrolled loop.
    Every,
    /// That of the features, which no step changes: the head alone adapts.
    Features,
}

/// What the method takes besides what is counted.
pub(super) fn lines(planner: &MemoryPlanner, tasks: usize) -> Lines {
    let (steps, graphs, batch) = match planner.method {
        Method::ProtoNet => return prototypical(planner, tasks),
        Method::Maml { steps } => (steps, InnerGraphs::Every, None),
        Method::MamlChain { steps } => (steps, InnerGraphs::One, None),
        Method::FirstOrder { steps } => (steps, InnerGraphs::None, None),
        Method::Reptile { steps, batch } => (steps, InnerGraphs::None, Some(batch)),
        Method::Anil { steps } => (steps, InnerGraphs::Features, None),
    };
    let moved = match graphs {
        InnerGraphs::Features => planner.profile.trainable_in("head"),
        _ => planner.profile.trainable(),
    };
    InnerLoop { steps, live: planner.live(tasks), graphs, moved, batch }.lines(planner)
}

fn prototypical(planner: &MemoryPlanner, tasks: usize) -> Lines {
    let activations = &planner.activations;
    let joint = activations.joint;
    let whole = activations.checkpointing != Checkpointing::Segments;
    let parameter_grads = activations.figure(joint.parameter_grads);
    if let Some(stacks) = activations.stacks.as_ref().filter(|_| whole) {
        return vec![
            ("buffers of fused operations", stacks.one_by_one(tasks)),
            // Of one task, beside the sum.
            ("gradients of tasks", parameter_grads),
        ];
    }
    // Segments are those of one task after the other.
    let live = if whole { tasks } else { tasks.min(1) } as u64;
    // Where every layer is an operation of its own, the gradient of a task is added to that of those
    // before it, tensor by tensor: beside the sum, both.
    let largest = modelled(planner.profile.largest_trainable());
    let added = largest.times(if live > 1 && activations.stacks.is_none() { 2 } else { 0 });
    vec![
        ("inputs of segments", activations.figure(activations.inputs)),
        ("activations", activations.figure(joint.saved).times(live)),
        ("gradients of tasks", parameter_grads.times(live) + added),
        ("gradients of activations", activations.figure(joint.activation_grads)),
        ("working memory", activations.figure(joint.workspace)),
    ]
}

/// The largest tensor: of the images of all tasks, of maps between layers, which have all tasks that
/// are side by side, and of parameters, of which each of these has its own where they adapt.
pub(super) fn largest(planner: &MemoryPlanner, tasks: usize) -> MemoryFigure {
    let (activations, task) = (&planner.activations, planner.task);
    let live = planner.live(tasks) as u64;
    let parameter = modelled(planner.profile.largest_trainable());
    let images = task.support.max(task.queries).saturating_mul(tasks) as u64;
    let images = modelled(MemoryFigure::exact(task.example.0).times(images));
    let map = activations.figure(activations.joint.largest_map);
    let computed = match (planner.method, activations.checkpointing) {
        (Method::ProtoNet, Checkpointing::Segments) => larger(map, parameter),
        (Method::ProtoNet, _) => larger(map.times(live), parameter),
        (Method::Reptile { batch, .. }, _) => larger(task.part(map, batch), parameter).times(live),
        _ => {
            let [support, queries] = [activations.support, activations.queries];
            let apart = activations.figure(support.largest_map.max(queries.largest_map));
            larger(apart, parameter).times(live)
        }
    };
    larger(computed, images)
}

/// An inner loop over `live` tasks, with what one task takes.
struct InnerLoop {
    steps: usize,
    live: usize,
    graphs: InnerGraphs,
    /// The tensors that move.
    moved: MemoryFigure,
    /// Examples of a mini-batch, of Reptile.
    batch: Option<usize>,
}

impl InnerLoop {
    fn lines(&self, planner: &MemoryPlanner) -> Lines {
        let (profile, task) = (&planner.profile, planner.task);
        let activations = &planner.activations;
        let (steps, live) = (self.steps as u64, self.live as u64);
        let with_graph = u64::from(self.graphs != InnerGraphs::None);
        // A task's own values at the start, if it has any, and what moves after every step that is
        // stored: all, or where no graph is wanted the last and the one at hand.
        let stored = if with_graph > 0 { steps } else { steps.min(2) };
        let shares_body = self.graphs == InnerGraphs::Features;
        let start = if shares_body { self.moved } else { profile.bytes() };
        let start = start.times(u64::from(live > 1));
        let moves = modelled(if shares_body { self.moved } else { profile.trainable() });
        // Examples of a task in one batch, and of these the ones of a step.
        let mini_batches = self.batch.map_or(MemoryFigure::exact(0), |batch| {
            let all = MemoryFigure::exact(task.example.0);
            let all = modelled(all.times((task.support + task.queries) as u64));
            all + task.part(all, batch)
        });
        // Both means of Adam and what the second begins with; of the batch that, and the sum of the ends.
        let [means, lasting] = if self.batch.is_some() { [3, 2] } else { [0, 0] };
        let [means, lasting] = [means, lasting].map(|copies| self.moved.times(copies));
        // Without a graph they are the gradients of fast weights themselves.
        let parameter_grads = activations.figure(activations.joint.parameter_grads);
        let mut lines = vec![
            ("fast weights", modelled(start + self.moved.times(stored)).times(live)),
            ("gradients of fast weights", moves.times(live)),
            ("means of the inner rule", modelled(means).times(live)),
            ("second moments that last", modelled(lasting)),
            // What the graph of a step adds to the gradient, by what moves and what does not.
            ("changes of gradients", moves.times(with_graph * live)),
            ("mini-batches", mini_batches.times(live)),
        ];
        let parameter_grads = match shares_body {
            // Those by support and by queries.
            true => modelled(profile.trainable()).times(2),
            false => parameter_grads.times(with_graph * live),
        };
        let parameter_grads = ("gradients of tasks", parameter_grads);
        if let Some(stacks) = &activations.stacks {
            let buffers = match self.batch {
                Some(batch) => stacks.displacement(self.live, self.steps, batch),
                None if shares_body => stacks.features(self.live),
                None => stacks.inner(self.live, self.steps, self.graphs),
            };
            lines.extend([("buffers of fused operations", buffers), parameter_grads]);
        } else {
            let [graphs, outer, grads, workspace] = self.layers(planner);
            lines.extend([graphs, outer, parameter_grads, grads, workspace]);
        }
        lines
    }

    /// What layers that are operations of their own take.
    fn layers(&self, planner: &MemoryPlanner) -> [(&'static str, MemoryFigure); 4] {
        let activations = &planner.activations;
        let [support, queries, joint] =
            [activations.support, activations.queries, activations.joint];
        let figure = |elements| activations.figure(elements);
        let apart = support.activation_grads.max(queries.activation_grads);
        let (outer, activation_grads) = match (self.batch, self.graphs) {
            (Some(batch), _) => {
                let part = |elements| planner.task.part(figure(elements), batch);
                (part(joint.saved), part(joint.activation_grads))
            }
            // Whichever is larger: the graph of an inner step is gone before the outer one comes.
            (_, InnerGraphs::None) => (figure(support.saved.max(queries.saved)), figure(apart)),
            _ => (figure(queries.saved), figure(apart)),
        };
        // The support's activations and what its gradient leaves for every graph, and once tangents.
        let graph = figure(support.saved + support.intermediate_grads);
        let inner_graphs = match self.graphs {
            InnerGraphs::None => MemoryFigure::exact(0),
            InnerGraphs::One => graph + figure(support.saved_tangents),
            InnerGraphs::Every => graph.times(self.steps as u64) + figure(support.saved_tangents),
            InnerGraphs::Features => figure(support.saved),
        };
        let live = self.live as u64;
        [
            ("inner graphs", inner_graphs.times(live)),
            ("activations", outer.times(live)),
            ("gradients of activations", activation_grads.times(live)),
            ("working memory", figure(joint.workspace)),
        ]
    }
}

fn larger(one: MemoryFigure, other: MemoryFigure) -> MemoryFigure {
    let sum = one + other;
    MemoryFigure { bytes: one.bytes.max(other.bytes), ..sum }
}

/// Counted tensors, whose number a formula tells.
fn modelled(amount: MemoryFigure) -> MemoryFigure {
    amount + MemoryFigure::modelled(0)
}
