//! The gradient of a step, whoever computes its parts.

use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData, Transaction};

use super::TrainError;
use super::averages::{self, Averages};
use super::micro_batches::MicroBatches;
use super::replica_group::ReplicaGroup;
use super::task_queue::{TaskQueue, Unprepared};
use crate::episode::{TaskKind, TaskSource};
use crate::hardware::to_device;
use crate::learners::{MetaGradients, MetaLearner};
use crate::parallel::{Contribution, FlatGradients, ParallelError, TreeSum, reduce};
use crate::phase::{Phase, phase, phase_on};
use crate::precision::{LossScale, ScaledGrads};

pub(super) struct StepGradients<B: AutodiffBackend> {
    pub(super) figures: LossAndScore<B>,
    pub(super) gradients: ScaledGrads,
}

pub(super) enum LossAndScore<B: AutodiffBackend> {
    Read { loss: f32, score: f64 },
    OnDevice([Tensor<B::InnerBackend, 1>; 2]),
}

impl<B: AutodiffBackend> LossAndScore<B> {
    pub(super) fn read(self) -> (f32, f64) {
        match self {
            Self::Read { loss, score } => (loss, score),
            Self::OnDevice(both) => {
                let [loss, score] = read::<B>(both);
                (loss as f32, score)
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct StepTasks<'a, T> {
    pub(super) source: &'a T,
    /// Tasks whose images are prepared ahead, if the source has them prepared.
    pub(super) queue: Option<&'a TaskQueue>,
    pub(super) step: u64,
    /// Index of the first one.
    pub(super) first: u64,
    pub(super) parts: MicroBatches,
}

impl<T: TaskSource> StepTasks<'_, T> {
    pub(super) fn batch<B: AutodiffBackend>(
        &self,
        part: usize,
        device: &B::Device,
    ) -> Result<<T::Kind as TaskKind>::Batch<B>, TrainError> {
        let indices = self.parts.indices(self.first, part);
        phase_on::<B, _>(Phase::Data, device, || {
            let Some(queue) = self.queue else {
                return Ok(self.source.tasks::<B>(indices, device)?);
            };
            let prepared = queue.take(indices.clone()).map_err(|reason| match reason {
                Unprepared::Data(error) => error.into(),
                Unprepared::Panic(reason) => {
                    TrainError::Preparation { step: self.step, reason, folder: None }
                }
            })?;
            Ok(self.source.tasks_from::<B>(indices, prepared, device)?)
        })
    }
}

/// The mean loss of the step's queries and its gradient, times `scale`; the running averages of
/// `learner` move.
///
/// A step in one part is what the learner says. The parts of another begin with the same running
/// averages, which are then set to the mean of the parts' updates, and sums are made by a tree that depends on the
/// parts alone: the result is the same, bit for bit, whoever computes which of them.
pub(super) fn step_gradients<B, T, L>(
    learner: L,
    tasks: StepTasks<'_, T>,
    group: &ReplicaGroup<B::Device>,
    scale: LossScale,
) -> Result<(L, StepGradients<B>), TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
{
    if tasks.parts.count() > 1 {
        return from_parts::<B, T, L>(learner, tasks, group, scale);
    }
    let device = &group.devices[0];
    let batch = tasks.batch::<B>(0, device)?;
    let MetaGradients { loss, score, gradients } =
        phase_on::<B, _>(Phase::Forward, device, || learner.meta_gradients(&batch, scale));
    Ok((learner, StepGradients { figures: LossAndScore::OnDevice([loss, score]), gradients }))
}

fn from_parts<B, T, L>(
    learner: L,
    tasks: StepTasks<'_, T>,
    group: &ReplicaGroup<B::Device>,
    scale: LossScale,
) -> Result<(L, StepGradients<B>), TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
{
    let before = averages::running_averages::<B, L>(&learner);
    let first = group.communicator.rank() * group.devices.len();
    let rounds = tasks.parts.rounds(first..first + group.devices.len(), group.count());
    let replicas: Vec<L> =
        group.devices.iter().map(|device| to_device::<B, L>(learner.clone(), device)).collect();
    let mut sums: Vec<_> =
        group.devices.iter().map(|_| TreeSum::new(tasks.parts.count())).collect();
    for parts in rounds {
        // Every device is given its part before the first one is waited for.
        let pending: Vec<_> = parts
            .into_iter()
            .map(|(index, part)| {
                let device = &group.devices[index];
                let batch = tasks.batch::<B>(part, device)?;
                // A part must not move the averages that another one begins with.
                let replica = replicas[index].clone();
                let forward = || replica.meta_gradients(&batch, scale);
                let gradients = phase_on::<B, _>(Phase::Forward, device, forward);
                let [count, each, ..] = T::Kind::queries(&batch).dims();
                let pending = PendingPart::<B, L> { replica, queries: count * each, gradients };
                Ok((index, part, pending))
            })
            .collect::<Result<_, TrainError>>()?;
        for (index, part, pending) in pending {
            sums[index].leaf(part, pending.finish(&before)?)?;
        }
    }
    drop(replicas);
    let total = phase(Phase::Reduce, || {
        let mut tree = TreeSum::new(tasks.parts.count());
        for node in sums.into_iter().flat_map(TreeSum::into_nodes) {
            tree.push(node)?;
        }
        reduce(&*group.communicator, group.reduction, tree)
    })?;
    let Contribution { gradients, loss, score, weight } = total;
    let share = (1.0 / weight) as f32;
    let mut gradients =
        gradients.scaled(share).into_gradients::<B, L>(&learner, &group.devices[0])?;
    let learner = averages::with_changes::<B, L>(learner, &mut gradients);
    let gradients = ScaledGrads::new(gradients, scale);
    let figures = LossAndScore::Read { loss: (loss / weight) as f32, score: score / weight };
    Ok((learner, StepGradients { figures, gradients }))
}

/// A replica that was given its part.
struct PendingPart<B: AutodiffBackend, L> {
    replica: L,
    queries: usize,
    gradients: MetaGradients<B>,
}

impl<B: AutodiffBackend, L: AutodiffModule<B>> PendingPart<B, L> {
    /// Contribution of the part to the sums: its means times its number of queries.
    fn finish(self, before: &Averages<B>) -> Result<Contribution, ParallelError> {
        let Self { replica, queries, gradients } = self;
        let MetaGradients { loss, score, gradients } = gradients;
        let weight = queries as f64;
        let (mut gradients, _) = gradients.into_parts();
        phase(Phase::Backward, || {
            averages::register_changes::<B, L>(&replica, before, &mut gradients);
            let gradients = FlatGradients::of::<B, L>(&replica, &gradients)?.scaled(weight as f32);
            let [loss, score] = read::<B>([loss, score]).map(|mean| weight * mean);
            Ok(Contribution { gradients, loss, score, weight })
        })
    }
}

/// Both numbers in one read, which is where an accelerator is waited for.
pub(super) fn read<B: AutodiffBackend>(both: [Tensor<B::InnerBackend, 1>; 2]) -> [f64; 2] {
    let both = both.into_iter().fold(Transaction::default(), Transaction::register);
    let both: Vec<f64> = both.execute().iter().map(number).collect();
    [both[0], both[1]]
}

/// The number of a tensor of one.
pub(super) fn number(data: &TensorData) -> f64 {
    data.iter().next().expect("a tensor of one number")
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::sync::Arc;

    use burn::backend::{Autodiff, Flex};
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::optim::GradientsParams;
    use burn::tensor::Tensor;
    use burn::tensor::backend::Backend;
    use fewshot_models::{Conv4, Conv4Config};

    use super::*;
    use crate::data::{Glyphs, GlyphsConfig};
    use crate::episode::{EpisodeSampler, Protocol};
    use crate::learners::ProtoNet;
    use crate::parallel::{Reduction, Solo};

    type B = Autodiff<Flex>;
    type Net = ProtoNet<B, Conv4<B>>;

    const TASKS: usize = 5;

    fn episodes() -> EpisodeSampler {
        let alphabets = GlyphsConfig { characters: 8, ..GlyphsConfig::default() };
        let glyphs = Glyphs::generate(&alphabets);
        glyphs.train.sampler(Protocol::new(4, 1).with_queries(2), 3).unwrap()
    }

    fn learner() -> Net {
        let device = Default::default();
        B::seed(&device, 5);
        ProtoNet::new(Conv4Config::omniglot().with_channels(4).with_blocks(2).init(&device))
    }

    struct Outcome {
        loss: f32,
        score: f64,
        /// Gradients, then running averages.
        gradients: Vec<f32>,
        averages: Vec<f32>,
    }

    /// A step by so many replicas, all on the one device there is.
    fn step(source: &EpisodeSampler, size: Option<usize>, replicas: usize, scale: f32) -> Outcome {
        let group = ReplicaGroup {
            devices: vec![Default::default(); replicas],
            communicator: Arc::new(Solo),
            reduction: Reduction::Exact,
        };
        let parts = MicroBatches::new(TASKS, 1, size, replicas).unwrap();
        let tasks = StepTasks { source, queue: None, step: 0, first: 10, parts };
        let scaler = crate::precision::GradScalerConfig::new().with_init_scale(scale);
        let scale = scaler.init().unwrap().loss_scale();
        let (learner, step) = step_gradients::<B, _, Net>(learner(), tasks, &group, scale).unwrap();
        let mut all = All { gradients: step.gradients.gradients(), values: [vec![], vec![]] };
        learner.visit(&mut all);
        let [gradients, averages] = all.values;
        let (loss, score) = step.figures.read();
        Outcome { loss, score, gradients, averages }
    }

    struct All<'a> {
        gradients: &'a GradientsParams,
        /// Gradients, and parameters that have none.
        values: [Vec<f32>; 2],
    }

    impl ModuleVisitor<B> for All<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            match self.gradients.get::<Flex, D>(param.id) {
                Some(gradient) => self.values[0].extend(gradient.into_data().iter::<f32>()),
                None => self.values[1].extend(param.val().into_data().iter::<f32>()),
            }
        }
    }

    fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
        assert_eq!(one.len(), other.len());
        let scale = one.iter().fold(0f32, |most, value| most.max(value.abs()));
        let differences = one.iter().zip(other).map(|(one, other)| (one - other).abs());
        differences.fold(0f32, f32::max) / scale
    }

    #[test]
    fn any_cut_of_the_tasks_gives_the_gradient_of_the_whole() {
        let source = episodes();
        let whole = step(&source, None, 1, 1.0);
        assert!(whole.gradients.iter().any(|value| value.abs() > 1e-4));
        for size in 1..=TASKS {
            let parts = step(&source, Some(size), 1, 1.0);
            let error = largest_difference(&whole.gradients, &parts.gradients);
            assert!(error < 1e-5, "in parts of {size}: {error}");
            assert!((parts.loss - whole.loss).abs() < 1e-5 * whole.loss.abs());
            assert!((parts.score - whole.score).abs() < 1e-6);
        }
    }

    #[test]
    fn queries_weigh_alike_in_tasks_of_several_sizes() {
        let alphabets = GlyphsConfig { characters: 4, drawers: 4, ..GlyphsConfig::default() };
        let glyphs = Glyphs::generate(&alphabets);
        let source = EpisodeSampler::varied(glyphs.train, 3).unwrap();
        let joint = step(&source, Some(1), 1, 1.0);
        let (mut sums, mut loss, mut all) = (vec![0.0; joint.gradients.len()], 0.0, 0.0);
        let mut counts = Vec::new();
        for task in 10..10 + TASKS as u64 {
            let batch = source.tasks::<B>(task..task + 1, &Default::default()).unwrap();
            let learner = learner();
            let gradients = learner.meta_gradients(&batch, LossScale::ONE);
            let queries = batch.query_labels.dims()[1] as f32;
            let parts = gradients.gradients.into_parts();
            let mut values = All { gradients: &parts.0, values: [vec![], vec![]] };
            learner.visit(&mut values);
            sums.iter_mut().zip(&values.values[0]).for_each(|(sum, value)| *sum += queries * value);
            loss += queries * gradients.loss.into_scalar();
            all += queries;
            counts.push(queries);
        }
        assert!(counts.iter().any(|count| *count != counts[0]), "{counts:?}");
        let mean: Vec<_> = sums.iter().map(|sum| sum / all).collect();
        assert!(largest_difference(&joint.gradients, &mean) < 1e-5);
        assert!((joint.loss - loss / all).abs() < 1e-5 * joint.loss.abs());
    }

    #[test]
    fn the_number_of_replicas_changes_no_bit() {
        let source = episodes();
        for size in [1, 2] {
            let alone = step(&source, Some(size), 1, 1.0);
            for replicas in 2..=TASKS.div_ceil(size) {
                let shared = step(&source, Some(size), replicas, 1.0);
                assert_eq!(shared.gradients, alone.gradients, "{replicas} replicas");
                assert_eq!(shared.averages, alone.averages, "{replicas} replicas");
                assert_eq!((shared.loss, shared.score), (alone.loss, alone.score));
            }
        }
    }

    #[test]
    fn running_averages_go_the_mean_of_the_ways_of_the_parts() {
        let source = episodes();
        let learner = learner();
        let before = averages::running_averages::<B, Net>(&learner);
        let ends: Vec<Vec<f32>> = (10..10 + TASKS as u64)
            .map(|task| {
                let replica = learner.clone();
                let batch = source.tasks::<B>(task..task + 1, &Default::default()).unwrap();
                let gradients = replica.meta_gradients(&batch, LossScale::ONE).gradients;
                let (gradients, _) = gradients.into_parts();
                let mut all = All { gradients: &gradients, values: [vec![], vec![]] };
                replica.visit(&mut all);
                let [_, averages] = all.values;
                averages
            })
            .collect();
        assert_eq!(before.len(), 4, "two of each block");
        let averages = step(&source, Some(1), 1, 1.0).averages;
        assert_ne!(averages, ends[0]);
        for (index, average) in averages.iter().enumerate() {
            let mean = ends.iter().map(|end| end[index]).sum::<f32>() / TASKS as f32;
            assert!((average - mean).abs() < 1e-6, "{average} is not {mean}");
        }
    }

    #[test]
    fn gradients_are_those_of_the_scaled_loss_and_the_loss_is_not() {
        let source = episodes();
        for size in [None, Some(2)] {
            let plain = step(&source, size, 1, 1.0);
            let scaled = step(&source, size, 1, 1024.0);
            assert_eq!(plain.loss, scaled.loss);
            let unscaled: Vec<_> = scaled.gradients.iter().map(|value| value / 1024.0).collect();
            assert!(largest_difference(&plain.gradients, &unscaled) < 1e-5);
        }
    }
}
