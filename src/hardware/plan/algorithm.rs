use serde::{Deserialize, Serialize};

use super::{Activations, MemoryPlanner, TaskShape};
use crate::hardware::{Checkpointing, MemoryFigure};

/// How tasks are learned, as far as memory goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Support and queries of every task go through the network together and nothing adapts:
    /// prototypical networks and their like. The graphs of all tasks are there at once, or under
    /// [`Checkpointing::Segments`] a segment of one.
    Prototypical,
    /// All parameters adapt.
    Maml {
        /// Inner steps.
        steps: usize,
        /// Tasks that adapt side by side; other tasks follow when these are done.
        lanes: usize,
        /// Graphs of inner steps that are there at once.
        graphs: InnerGraphs,
    },
    /// The parameters of one module adapt.
    HeadOnly {
        /// Name of the module.
        head: String,
        /// Inner steps.
        steps: usize,
        /// As for [`Maml`](Self::Maml).
        lanes: usize,
        /// As for [`Maml`](Self::Maml).
        graphs: InnerGraphs,
    },
    /// All parameters adapt to support and queries in mini-batches, by Adam, and the way they go is
    /// what is learned from.
    Reptile {
        /// Inner steps.
        steps: usize,
        /// Examples of a mini-batch.
        batch: usize,
        /// As for [`Maml`](Self::Maml).
        lanes: usize,
    },
}

impl Algorithm {
    /// Most tasks whose graphs are there at once, where others follow.
    pub(crate) fn lanes(&self) -> Option<usize> {
        match self {
            Self::Prototypical => None,
            Self::Maml { lanes, .. }
            | Self::HeadOnly { lanes, .. }
            | Self::Reptile { lanes, .. } => Some(*lanes),
        }
    }
}

/// Graphs of inner steps that an outer gradient has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InnerGraphs {
    /// None: the first order.
    None,
    /// That of one step, made again from its fast weights: the chain.
    One,
    /// Those of all steps: the unrolled loop.
    Every,
}

/// An inner loop over `live` tasks, with what one task takes.
struct Inner {
    steps: u64,
    live: u64,
    graphs: InnerGraphs,
    /// The tensors that move.
    moved: MemoryFigure,
}

/// What the algorithm takes besides what is counted.
pub(super) fn lines(planner: &MemoryPlanner, tasks: usize) -> Vec<(&'static str, MemoryFigure)> {
    let activations = &planner.activations;
    let inner = |steps: &usize, lanes: &usize, graphs, moved| Inner {
        steps: *steps as u64,
        live: tasks.min(*lanes) as u64,
        graphs,
        moved,
    };
    let inner = match &planner.algorithm {
        Algorithm::Prototypical => {
            let whole = activations.checkpointing != Checkpointing::Segments;
            if let Some(stacks) = activations.stacks.as_ref().filter(|_| whole) {
                return vec![
                    ("buffers of fused operations", stacks.one_by_one(tasks)),
                    // Of one task, beside the sum.
                    ("gradients of tasks", activations.parameter_grads),
                ];
            }
            // Segments are those of one task after the other.
            let live = match activations.checkpointing {
                Checkpointing::Segments => tasks.min(1),
                Checkpointing::Nothing | Checkpointing::Balanced => tasks,
            };
            return vec![
                ("inputs of segments", activations.inputs),
                ("activations", activations.joint.times(live as u64)),
                (
                    "gradients of tasks",
                    activations.parameter_grads.times(live as u64) + added(planner, live),
                ),
                ("gradients of activations", activations.activation_grads),
                ("working memory", activations.workspace),
            ];
        }
        Algorithm::Maml { steps, lanes, graphs } => {
            inner(steps, lanes, *graphs, planner.profile.trainable())
        }
        Algorithm::HeadOnly { head, steps, lanes, graphs } => {
            inner(steps, lanes, *graphs, planner.profile.trainable_in(head))
        }
        Algorithm::Reptile { steps, lanes, .. } => {
            inner(steps, lanes, InnerGraphs::None, planner.profile.trainable())
        }
    };
    inner.lines(planner)
}

/// The largest tensor: of the images of all tasks, of maps between layers, which have all tasks that
/// are side by side, and of parameters, of which each of these has its own where they adapt.
pub(super) fn largest(planner: &MemoryPlanner, tasks: usize) -> MemoryFigure {
    let Activations { largest_map, largest_map_apart, checkpointing, .. } = planner.activations;
    let live = planner.algorithm.lanes().map_or(tasks, |lanes| tasks.min(lanes)) as u64;
    let parameter = modelled(planner.profile.largest_trainable());
    let images = planner.task.support.max(planner.task.queries).saturating_mul(tasks) as u64;
    let images = modelled(MemoryFigure::exact(planner.task.example.0).times(images));
    let computed = match (&planner.algorithm, checkpointing) {
        (Algorithm::Prototypical, Checkpointing::Segments) => larger(largest_map, parameter),
        (Algorithm::Prototypical, _) => larger(largest_map.times(live), parameter),
        (Algorithm::Reptile { batch, .. }, _) => {
            larger(planner.task.part(largest_map, *batch), parameter).times(live)
        }
        (Algorithm::Maml { .. } | Algorithm::HeadOnly { .. }, _) => {
            larger(largest_map_apart, parameter).times(live)
        }
    };
    larger(computed, images)
}

impl Inner {
    fn lines(&self, planner: &MemoryPlanner) -> Vec<(&'static str, MemoryFigure)> {
        let activations = &planner.activations;
        let each = |amount: MemoryFigure| amount.times(self.live);
        let (outer, activation_grads) = match (&planner.algorithm, self.graphs) {
            (Algorithm::Reptile { batch, .. }, _) => {
                let part = |amount| planner.task.part(amount, *batch);
                (part(activations.joint), part(activations.activation_grads))
            }
            // Whichever is larger: the graph of an inner step is gone before the outer one comes.
            (_, InnerGraphs::None) => (
                larger(activations.support, activations.queries),
                activations.activation_grads_apart,
            ),
            _ => (activations.queries, activations.activation_grads_apart),
        };
        let fast = [
            ("fast weights", each(self.fast_weights(planner.profile.bytes()))),
            ("gradients of fast weights", each(modelled(planner.profile.trainable()))),
        ];
        let parameter_grads = match self.graphs {
            // They are the gradients of fast weights themselves.
            InnerGraphs::None => activations.parameter_grads.times(0),
            InnerGraphs::One | InnerGraphs::Every => activations.parameter_grads,
        };
        let remembered = match &planner.algorithm {
            // Both means of Adam.
            Algorithm::Reptile { .. } => modelled(self.moved.times(2)),
            _ => MemoryFigure::exact(0),
        };
        let rule = [
            ("means of the inner rule", each(remembered)),
            ("changes of gradients", each(self.changes(planner))),
            ("mini-batches", each(self.mini_batches(planner))),
        ];
        let fast = fast.into_iter().chain(rule);
        if let Some(stacks) = &activations.stacks {
            let (live, steps) = (self.live as usize, self.steps as usize);
            let buffers = match &planner.algorithm {
                Algorithm::Reptile { batch, .. } => stacks.displacement(live, steps, *batch),
                algorithm => {
                    let body = !matches!(algorithm, Algorithm::HeadOnly { .. });
                    stacks.inner(live, steps, self.graphs, body)
                }
            };
            let own = [
                ("buffers of fused operations", buffers),
                ("gradients of tasks", each(parameter_grads)),
            ];
            return fast.chain(own).collect();
        }
        let layers = [
            ("inner graphs", each(self.graphs(activations))),
            ("activations", each(outer)),
            ("gradients of tasks", each(parameter_grads)),
            ("gradients of activations", each(activation_grads)),
            ("working memory", activations.workspace),
        ];
        fast.chain(layers).collect()
    }

    /// Examples of a task in one batch, and of these the ones of a step.
    fn mini_batches(&self, planner: &MemoryPlanner) -> MemoryFigure {
        let Algorithm::Reptile { batch, .. } = planner.algorithm else {
            return MemoryFigure::exact(0);
        };
        let TaskShape { support, queries, example } = planner.task;
        let all = modelled(MemoryFigure::exact(example.0).times((support + queries) as u64));
        all + planner.task.part(all, batch)
    }

    /// A task's own values at the start, if it has any, and what moves after every step that is
    /// stored: all, or where no graph is wanted the last and the one at hand.
    fn fast_weights(&self, whole: MemoryFigure) -> MemoryFigure {
        let start = whole.times(u64::from(self.live > 1));
        let stored = match self.graphs {
            InnerGraphs::None => self.steps.min(2),
            InnerGraphs::One | InnerGraphs::Every => self.steps,
        };
        modelled(start + self.moved.times(stored))
    }

    /// What the graph of a step adds to the gradient, by what moves and what does not.
    fn changes(&self, planner: &MemoryPlanner) -> MemoryFigure {
        match self.graphs {
            InnerGraphs::None => MemoryFigure::exact(0),
            InnerGraphs::One | InnerGraphs::Every => modelled(planner.profile.trainable()),
        }
    }

    /// The support's activations and what its gradient leaves for every graph, and once tangents.
    fn graphs(
        &self,
        Activations { support, intermediate_grads, saved_tangents, .. }: &Activations,
    ) -> MemoryFigure {
        let graphs = match self.graphs {
            InnerGraphs::None => return MemoryFigure::exact(0),
            InnerGraphs::One => 1,
            InnerGraphs::Every => self.steps,
        };
        (*support + *intermediate_grads).times(graphs) + *saved_tangents
    }
}

/// Where every layer is an operation of its own, the gradient of a task is added to that of those
/// before it, tensor by tensor: beside the sum, both.
fn added(planner: &MemoryPlanner, live: usize) -> MemoryFigure {
    let layers = live > 1 && planner.activations.stacks.is_none();
    let largest = modelled(planner.profile.largest_trainable());
    largest.times(if layers { 2 } else { 0 })
}

fn larger(one: MemoryFigure, other: MemoryFigure) -> MemoryFigure {
    let sum = one + other;
    MemoryFigure { bytes: one.bytes.max(other.bytes), ..sum }
}

/// Counted tensors, whose number a formula tells.
fn modelled(amount: MemoryFigure) -> MemoryFigure {
    amount + MemoryFigure::modelled(0)
}
