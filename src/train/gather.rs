//! The gradient of a step, whoever computes its parts.

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::ElementConversion;
use burn::tensor::backend::AutodiffBackend;

use super::team::{MicroBatches, Team};
use super::{TrainError, averages};
use crate::episode::{TaskKind, TaskSource};
use crate::hardware::carried;
use crate::learners::{MetaGradients, MetaLearner};
use crate::parallel::{Contribution, FlatGradients, ParallelError, TreeSum, reduce};
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
    let MetaGradients { loss, score, gradients } =
        phase_on::<B, _>(Phase::Forward, device, || learner.meta_gradients(&batch, scale));
    // An accelerator is waited for where its result is read.
    let (loss, score) =
        phase(Phase::Backward, || (loss.into_scalar().elem(), score.into_scalar().elem()));
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
    let before = averages::of::<B, L>(&learner);
    let first = team.communicator.rank() * team.devices.len();
    let mine: Vec<_> = (first..first + team.devices.len())
        .map(|replica| tasks.parts.of_replica(replica, team.replicas()))
        .collect();
    let replicas: Vec<L> =
        team.devices.iter().map(|device| carried::<B, L>(learner.clone(), device)).collect();
    let mut found: Vec<Vec<(usize, Contribution)>> = mine.iter().map(|_| Vec::new()).collect();
    for round in 0..mine.iter().map(ExactSizeIterator::len).max().unwrap_or(0) {
        // Every device is given its part before the first one is waited for.
        let parts = mine.iter().enumerate().filter_map(|(index, parts)| {
            let part = parts.start + round;
            parts.contains(&part).then_some((index, part))
        });
        let at_work: Vec<_> = parts
            .map(|(index, part)| {
                let batch = tasks.batch::<B>(part, &team.devices[index]);
                // A part must not move the averages that another one begins with.
                let at_work =
                    AtWork::<B, L>::start::<T::Kind>(replicas[index].clone(), &batch, scale);
                (index, part, at_work)
            })
            .collect();
        for (index, part, at_work) in at_work {
            found[index].push((part, at_work.finish(&before)?));
        }
    }
    drop(replicas);
    let total = phase(Phase::Reduce, || {
        let mut tree = TreeSum::new(tasks.parts.count());
        for (part, contribution) in found.into_iter().flatten() {
            tree.leaf(part, contribution)?;
        }
        reduce(&*team.communicator, team.reduction, tree)
    })?;
    let Contribution { gradients, loss, score, weight } = total;
    let share = (1.0 / weight) as f32;
    let mut gradients =
        gradients.scaled(share).into_gradients::<B, L>(&learner, &team.devices[0])?;
    let learner = averages::moved::<B, L>(learner, &mut gradients);
    let gradients = ScaledGrads::new(gradients, scale);
    let (loss, score) = ((loss / weight) as f32, score / weight);
    Ok((learner, StepGradients { loss, score, gradients }))
}

/// A replica that was given its part.
struct AtWork<B: AutodiffBackend, L> {
    replica: L,
    queries: usize,
    found: MetaGradients<B>,
}

impl<B: AutodiffBackend, L: AutodiffModule<B>> AtWork<B, L> {
    fn start<K: TaskKind>(replica: L, batch: &K::Batch<B>, scale: LossScale) -> Self
    where
        L: MetaLearner<B, K>,
    {
        let queries = K::queries(batch);
        let [tasks, each, ..] = queries.dims();
        let found = phase_on::<B, _>(Phase::Forward, &queries.device(), || {
            replica.meta_gradients(batch, scale)
        });
        Self { replica, queries: tasks * each, found }
    }

    /// What the part adds to the sums: its means times its number of queries.
    fn finish(self, before: &GradientsParams) -> Result<Contribution, ParallelError> {
        let Self { replica, queries, found } = self;
        let weight = queries as f64;
        let (mut gradients, _) = found.gradients.into_parts();
        // An accelerator is waited for where its result is read.
        phase(Phase::Backward, || {
            averages::register_moves::<B, L>(&replica, before, &mut gradients);
            let gradients = FlatGradients::of::<B, L>(&replica, &gradients)?.scaled(weight as f32);
            let loss = weight * found.loss.into_scalar().elem::<f64>();
            let score = weight * found.score.into_scalar().elem::<f64>();
            Ok(Contribution { gradients, loss, score, weight })
        })
    }
}
