//! The gradient of a step, whoever computes its parts.

use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{ElementConversion, Tensor, TensorData};
use fewshot_models::nn::RUNNING_AVERAGES;

use super::TrainError;
use super::team::{MicroBatches, Team};
use crate::episode::{TaskKind, TaskSource};
use crate::hardware::carried;
use crate::learners::{MetaGradients, MetaLearner};
use crate::parallel::{Contribution, FlatGradients, TreeSum, reduce};
use crate::phase::{Phase, phase, phase_on};
use crate::precision::{LossScale, ScaledGrads};

/// What a step learns from its tasks.
pub(super) struct StepGradients {
    pub(super) loss: f32,
    pub(super) score: f64,
    pub(super) gradients: ScaledGrads,
}

/// The tasks of one step.
#[derive(Clone, Copy)]
pub(super) struct StepTasks<'a, T> {
    pub(super) source: &'a T,
    /// Index of the first one.
    pub(super) first: u64,
    pub(super) parts: MicroBatches,
}

impl<T: TaskSource> StepTasks<'_, T> {
    pub(super) fn batch<B: AutodiffBackend>(
        &self,
        part: usize,
        device: &B::Device,
    ) -> <T::Kind as TaskKind>::Batch<B> {
        let tasks = self.parts.tasks(part);
        let tasks = self.first + tasks.start as u64..self.first + tasks.end as u64;
        phase_on::<B, _>(Phase::Data, device, || self.source.tasks::<B>(tasks, device))
    }
}

/// The mean loss of the step's queries and its gradient, times `scale`; the running averages of
/// `learner` move.
///
/// A step in one part is what the learner says. The parts of another begin with the same running
/// averages, which then go the mean of their ways, and sums are made by a tree that depends on the
/// parts alone: the result is the same, bit for bit, whoever computes which of them.
pub(super) fn gather<B, T, L>(
    learner: L,
    tasks: StepTasks<'_, T>,
    team: &Team<B::Device>,
    scale: LossScale,
) -> Result<(L, StepGradients), TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
{
    if tasks.parts.count() > 1 {
        return from_parts::<B, T, L>(learner, tasks, team, scale);
    }
    let device = &team.devices[0];
    let batch = tasks.batch::<B>(0, device);
    let MetaGradients { loss, score, gradients } = phase_on::<B, _>(Phase::Forward, device, || {
        learner.meta_gradients(&batch, scale)
    });
    // An accelerator is waited for where its result is read.
    let (loss, score) = phase(Phase::Backward, || {
        (loss.into_scalar().elem(), score.into_scalar().elem())
    });
    Ok((learner, StepGradients { loss, score, gradients }))
}

fn from_parts<B, T, L>(
    learner: L,
    tasks: StepTasks<'_, T>,
    team: &Team<B::Device>,
    scale: LossScale,
) -> Result<(L, StepGradients), TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
{
    let before = averages::<B, L>(&learner);
    let first = team.communicator.rank() * team.devices.len();
    let shares: Vec<_> = (0..team.devices.len())
        .map(|index| tasks.parts.of_replica(first + index, team.replicas()))
        .collect();
    let replicas: Vec<L> =
        team.devices.iter().map(|device| carried::<B, L>(learner.clone(), device)).collect();
    let mut found: Vec<_> = shares.iter().map(|share| Vec::with_capacity(share.len())).collect();
    let rounds = shares.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    for round in 0..rounds {
        // Every device is given its part before the first one is waited for.
        let busy: Vec<_> = (0..replicas.len())
            .filter_map(|index| Some((index, shares[index].clone().nth(round)?)))
            .map(|(index, part)| {
                let device = &team.devices[index];
                // A part must not move the averages that another one begins with.
                let replica = replicas[index].clone();
                let batch = tasks.batch::<B>(part, device);
                let queries = T::Kind::queries(&batch).dims();
                let found = phase_on::<B, _>(Phase::Forward, device, || {
                    replica.meta_gradients(&batch, scale)
                });
                (index, part, queries[0] * queries[1], replica, found)
            })
            .collect();
        for (index, part, queries, replica, gradients) in busy {
            let found_here = phase(Phase::Backward, || {
                contribution::<B, L>(&replica, gradients, &before, queries as f64)
            })?;
            found[index].push((part, found_here));
        }
    }
    drop(replicas);
    let total = phase(Phase::Reduce, || {
        let mut tree = TreeSum::new();
        for (part, contribution) in found.into_iter().flatten() {
            tree.leaf(part, contribution);
        }
        reduce(&*team.communicator, tree, team.reduction)
    })?;
    let mean = total.mean();
    let gradients = mean.floats.len() - before.len();
    let (gradients, moved) = mean.floats.split_at(gradients);
    let gradients =
        FlatGradients { values: gradients.to_vec(), present: mean.present.clone() }.restored(&learner, &team.devices[0])?;
    let after: Vec<f32> = before.iter().zip(moved).map(|(before, moved)| before + moved).collect();
    let learner = if before.is_empty() { learner } else { with_averages::<B, L>(learner, &after) };
    let gradients = ScaledGrads::new(gradients, scale);
    Ok((learner, StepGradients { loss: mean.loss as f32, score: mean.score, gradients }))
}

/// What a part adds to the sums: its means times its number of queries.
fn contribution<B: AutodiffBackend, L: AutodiffModule<B>>(
    replica: &L,
    found: MetaGradients<B>,
    before: &[f32],
    queries: f64,
) -> Result<Contribution, TrainError> {
    let FlatGradients { mut values, present } =
        FlatGradients::of::<B, L>(found.gradients.gradients(), replica)?;
    let after = averages::<B, L>(replica);
    values.extend(after.iter().zip(before).map(|(after, before)| after - before));
    let loss: f64 = found.loss.into_scalar().elem();
    let score: f64 = found.score.into_scalar().elem();
    Ok(Contribution::of_mean(values, present, loss, score, queries))
}

/// The running averages of `module`, one after the other.
fn averages<B: AutodiffBackend, M: Module<B>>(module: &M) -> Vec<f32> {
    let mut found = Averages { within: Vec::new(), values: Vec::new() };
    module.visit(&mut found);
    found.values
}

struct Averages {
    within: Vec<String>,
    values: Vec<f32>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Averages {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.within.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.within.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if is_average(&self.within) {
            self.values.extend(param.val().into_data().iter::<f32>());
        }
    }
}

fn is_average(within: &[String]) -> bool {
    within.last().is_some_and(|name| RUNNING_AVERAGES.contains(&name.as_str()))
}

/// `module` with these running averages.
fn with_averages<B: AutodiffBackend, M: Module<B>>(module: M, values: &[f32]) -> M {
    module.map(&mut Moved { within: Vec::new(), values })
}

struct Moved<'a> {
    within: Vec<String>,
    values: &'a [f32],
}

impl<B: AutodiffBackend> ModuleMapper<B> for Moved<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.within.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.within.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if !is_average(&self.within) {
            return param;
        }
        param.map(|old| {
            let (now, later) = self.values.split_at(old.shape().num_elements());
            self.values = later;
            let data = TensorData::new(now.to_vec(), old.dims());
            Tensor::from_data(data, (&old.device(), old.dtype()))
        })
    }
}
