//! Memory of meta-training, line by line, without running it.

mod method;
mod task;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use method::Method;
pub use task::{Activations, TaskShape};

use super::{Bytes, MemoryFigure, MemoryFit, ModelProfile, OptimizerKind, Provenance};

/// Everything that a plan follows from. Without measurements a plan adds up parameters, gradients, saved maps and
/// workspace, and is within about 30 % of what training takes.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use fewshot::hardware::{
///     Activations, Bytes, Checkpointing, MemoryPlanner, Method, ModelProfile, OptimizerKind,
///     TaskShape,
/// };
/// use fewshot::kernels::route;
/// use fewshot::models::Conv4Config;
///
/// type B = Autodiff<Flex>;
/// let config = Conv4Config::omniglot();
/// let task = TaskShape { support: 5, queries: 75, example: Bytes(4 * 28 * 28 + 8) };
/// let keep = Checkpointing::Nothing;
/// let planner = MemoryPlanner {
///     profile: ModelProfile::of(&config.init::<B>(&Default::default())),
///     optimizer: OptimizerKind::Adam,
///     weight_averages: 0,
///     method: Method::ProtoNet,
///     lanes: 1,
///     activations: Activations::modelled(&config, task, route::<B>(), keep),
///     task,
///     measured: None,
///     largest_buffer: None,
/// };
/// println!("{}", planner.plan(4));
/// assert!(planner.max_tasks(Bytes(1 << 30)) > Some(20));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlanner {
    /// The learner's parameters.
    pub profile: ModelProfile,
    /// Optimizer that moves them.
    pub optimizer: OptimizerKind,
    /// Number of averages of all weights: 1 with
    /// [`MetaTrainer::average_weights`](crate::train::MetaTrainer::average_weights).
    pub weight_averages: u64,
    /// Way in which tasks are learned.
    pub method: Method,
    /// Most tasks that adapt side by side; other tasks follow when these are done. Those of
    /// [`Method::ProtoNet`] are there at once.
    pub lanes: usize,
    /// Size of one task.
    pub task: TaskShape,
    /// Activations of one task.
    pub activations: Activations,
    /// Memory of whole steps, optimizer included, where it was measured, as by
    /// [`fit_meta_batch`](crate::train::fit_meta_batch); used instead of the formulas. Its sizes
    /// must not exceed the number of tasks that are side by side.
    pub measured: Option<MemoryFit>,
    /// The largest single allocation of the device, where there is a limit that is known.
    pub largest_buffer: Option<Bytes>,
}

/// Memory of a meta-batch at the widest point of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Tasks in the meta-batch.
    pub tasks: usize,
    /// Purposes of the memory; nothing is in two lines.
    pub lines: Vec<PlanLine>,
    /// The largest tensor among all that: of images, of maps between layers or of parameters.
    pub largest: MemoryFigure,
    /// Limit of a tensor's memory, where there is one that is known.
    pub largest_buffer: Option<Bytes>,
}

/// One purpose of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanLine {
    /// Name of the purpose.
    pub name: String,
    /// Amount with its source.
    #[serde(flatten)]
    pub amount: MemoryFigure,
}

impl MemoryPlanner {
    /// The plan of a meta-batch of `tasks`: counted lines, and besides those the memory that measured steps
    /// took beyond them or, without measurements, the lines of formulas.
    pub fn plan(&self, tasks: usize) -> MemoryPlan {
        let mut lines = self.counted(tasks);
        match &self.measured {
            Some(fit) => lines.push(("fast weights and activations", self.rest(fit, tasks))),
            None => lines.extend(method::lines(self, tasks)),
        }
        // Measured steps have none.
        lines.push(("weight average", self.profile.bytes().times(self.weight_averages)));
        lines.retain(|(_, amount)| amount.bytes.0 > 0 || amount.source == Provenance::Unknown);
        let line = |(name, amount): (&str, _)| PlanLine { name: name.to_owned(), amount };
        MemoryPlan {
            tasks,
            lines: lines.into_iter().map(line).collect(),
            largest: method::largest(self, tasks),
            largest_buffer: self.largest_buffer,
        }
    }

    /// Number of tasks, among so many, that adapt side by side.
    fn live(&self, tasks: usize) -> usize {
        if self.method == Method::ProtoNet { tasks } else { tasks.min(self.lanes) }
    }

    /// Memory of measured steps beyond the counted lines, to which alone tasks add that follow others.
    fn rest(&self, fit: &MemoryFit, tasks: usize) -> MemoryFigure {
        let live = self.live(tasks);
        let counted: MemoryFigure = self.counted(live).into_iter().map(|(_, amount)| amount).sum();
        let all = fit.at(live);
        MemoryFigure { bytes: Bytes(all.bytes.0.saturating_sub(counted.bytes.0)), ..all }
    }

    /// Most tasks of a meta-batch whose plan fits `budget`, 0 if none does; `None` where a line of
    /// the plan is not known.
    pub fn max_tasks(&self, budget: Bytes) -> Option<usize> {
        let fits = |tasks| self.plan(tasks).fits(budget);
        let mut small = 0;
        let mut large = 1;
        while fits(large)? && large < MOST {
            (small, large) = (large, 2 * large);
        }
        while large - small > 1 {
            let middle = small + (large - small) / 2;
            if fits(middle)? { small = middle } else { large = middle }
        }
        Some(small)
    }

    /// The lines that are counted, not modelled.
    fn counted(&self, tasks: usize) -> Lines {
        let examples = tasks.saturating_mul(self.task.support + self.task.queries) as u64;
        vec![
            ("parameters", self.profile.bytes()),
            ("gradients", self.profile.trainable()),
            ("optimizer state", self.profile.optimizer_state(self.optimizer)),
            ("tasks", MemoryFigure::exact(self.task.example.0).times(examples)),
        ]
    }
}

/// Purposes of memory by their names.
type Lines = Vec<(&'static str, MemoryFigure)>;

/// Where the search for the most tasks ends.
const MOST: usize = 1 << 30;

impl MemoryPlan {
    /// All lines together.
    pub fn total(&self) -> MemoryFigure {
        self.lines.iter().map(|line| line.amount).sum()
    }

    /// The line of this name.
    pub fn line(&self, name: &str) -> Option<MemoryFigure> {
        self.lines.iter().find(|line| line.name == name).map(|line| line.amount)
    }

    /// True if all lines together are at most `budget`, and the largest tensor at most the largest
    /// single allocation; `None` where that is not known.
    pub fn fits(&self, budget: Bytes) -> Option<bool> {
        match (self.total().fits(budget), self.largest_fits()) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// True if the largest tensor is within its limit.
    pub fn largest_fits(&self) -> Option<bool> {
        self.largest_buffer.map_or(Some(true), |most| self.largest.fits(most))
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.lines.iter().map(|line| line.name.len());
        let widest = names.max().unwrap_or(0).max("largest tensor".len());
        for PlanLine { name, amount } in &self.lines {
            writeln!(f, "{name:widest$}  {:>9}  {}", amount.bytes, amount.source)?;
        }
        let total = self.total();
        write!(f, "{:widest$}  {:>9}  {}", "total", total.bytes, total.source)?;
        let Some(most) = self.largest_buffer else { return Ok(()) };
        let bytes = self.largest.bytes;
        write!(f, "\n{:widest$}  {bytes:>9}  {most} at most", "largest tensor")
    }
}
