//! Processes that MPI started. Each test starts itself again through `mpirun`, as many times as it
//! wants processes; Debian's packages openmpi-bin and libopenmpi-dev have what it needs.

#![cfg(all(feature = "mpi", feature = "flex"))]

use std::env;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitStatus, exit};
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::backend::{Autodiff, Flex};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot::data::{DataError, GlyphsConfig};
use fewshot::episode::{Classification, EpisodeBatch, EpisodeSampler, TaskSource};
use fewshot::learners::Divergence;
use fewshot::models::Conv4;
use fewshot::models::nn::{Linear, LinearConfig};
use fewshot::optim::FusedOptimizer;
use fewshot::parallel::{
    Communicator, Contribution, FlatGradients, Launch, MpiCommunicator, ParallelError, Reduction,
    Solo, TreeSum, agree, launched, reduce, shard,
};
use fewshot::prelude::*;
use serde_json::{Value, json};

/// Names the test that a process was started for, and a folder for what it finds.
const ROLE: &str = "FEWSHOT_MPI_TEST";
const FOLDER: &str = "FEWSHOT_MPI_FOLDER";

/// How several processes ended.
struct Ended {
    status: ExitStatus,
    text: String,
    took: Duration,
}

/// Whether this process is one of those that the test `name` has started.
fn is_started(name: &str) -> bool {
    env::var(ROLE).is_ok_and(|role| role == name)
}

/// Starts the test `name` in `processes`.
fn start(name: &str, processes: usize, folder: &Path) -> Ended {
    let begin = Instant::now();
    let mut mpirun = Command::new("mpirun");
    mpirun
        .args(["--oversubscribe", "-n", &processes.to_string(), "--timeout", "120"])
        .args(["--mca", "btl_vader_single_copy_mechanism", "none"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .envs([(ROLE, name), ("OMPI_ALLOW_RUN_AS_ROOT", "1")])
        .envs([("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .env(FOLDER, folder);
    let output = mpirun.output().unwrap_or_else(|error| {
        panic!("mpirun: {error}; install Open MPI (Debian: openmpi-bin and libopenmpi-dev)")
    });
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ended { status: output.status, text, took: begin.elapsed() }
}

/// Runs `body` in 1 to 4 processes, all of which must come to its end.
fn in_processes(name: &str, body: fn()) {
    let file = |rank: usize, size: usize| format!("end of {rank} of {size}");
    if is_started(name) {
        body();
        let launch = launched().unwrap();
        let folder = env::var(FOLDER).unwrap();
        fs::write(Path::new(&folder).join(file(launch.rank, launch.size)), []).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for size in 1..=4 {
        let ended = start(name, size, folder.path());
        assert!(ended.status.success(), "{size} processes: {}", ended.text);
        for rank in 0..size {
            let end = folder.path().join(file(rank, size));
            assert!(end.exists(), "process {rank} of {size}: {}", ended.text);
        }
    }
}

/// All processes, with messages so small that everything takes several.
fn small_messages() -> MpiCommunicator {
    MpiCommunicator::with_bucket(64).unwrap()
}

#[test]
fn all_processes_get_the_sums() {
    in_processes("all_processes_get_the_sums", || {
        let world = small_messages();
        let (rank, size) = (world.rank() as f32, world.size() as f32);
        let mut values = (0..1000).map(|index| rank + index as f32).collect::<Vec<_>>();
        world.all_reduce(&mut values).unwrap();
        for (index, value) in values.into_iter().enumerate() {
            assert_eq!(value, size * (size - 1.0) / 2.0 + size * index as f32);
        }
    });
}

#[test]
fn all_processes_get_all_bytes() {
    in_processes("all_processes_get_all_bytes", || {
        let world = small_messages();
        let bytes = |rank: usize| vec![rank as u8; 137 * rank];
        let found = world.all_gather(&bytes(world.rank())).unwrap();
        assert_eq!(found, (0..world.size()).map(bytes).collect::<Vec<_>>());
        let nothing = world.all_gather(&[]).unwrap();
        assert_eq!(nothing, vec![Vec::<u8>::new(); world.size()]);
    });
}

#[test]
fn all_processes_get_the_bytes_of_the_first() {
    in_processes("all_processes_get_the_bytes_of_the_first", || {
        let world = small_messages();
        let wanted = (0..1000).map(|index| (index % 251) as u8).collect::<Vec<_>>();
        let mut bytes = if world.rank() == 0 { wanted.clone() } else { vec![9; world.rank()] };
        world.broadcast(&mut bytes).unwrap();
        assert_eq!(bytes, wanted);
        world.barrier().unwrap();
    });
}

#[test]
fn mpi_runs_once() {
    in_processes("mpi_runs_once", || {
        let world = MpiCommunicator::world().unwrap();
        let launch = launched().unwrap();
        assert_eq!((launch.rank, launch.size), (world.rank(), world.size()));
        assert_eq!(launch.by, "mpirun (Open MPI)");
        assert_eq!(MpiCommunicator::world().err(), Some(ParallelError::AlreadyInitialized));
        drop(world);
        assert_eq!(MpiCommunicator::world().err(), Some(ParallelError::Finalized));
    });
}

type B = Autodiff<Flex>;

/// The contribution of one leaf: numbers whose sum depends on the order of additions.
fn leaf(module: &Linear<B>, index: usize) -> Contribution {
    let device = Default::default();
    let [rows, columns] = module.weight.val().dims();
    let number = |place: usize| ((index * 31 + place * 17) as f32).sin() * (place as f32).exp2();
    let values = (0..rows * columns).map(|place| number(place % 24)).collect::<Vec<_>>();
    let mut gradients = GradientsParams::new();
    let weight = Tensor::from_data(TensorData::new(values, [rows, columns]), &device);
    gradients.register::<Flex, 2>(module.weight.id, weight);
    let gradients = FlatGradients::of::<B, _>(module, &gradients).unwrap();
    Contribution { gradients, loss: 1.0 / (index + 1) as f64, score: 0.1, weight: 3.0 }
}

#[test]
fn the_sum_has_the_same_bits_for_any_number_of_processes() {
    let name = "the_sum_has_the_same_bits_for_any_number_of_processes";
    if !is_started(name) {
        let folder = tempfile::tempdir().unwrap();
        let sums = (1..=4).map(|processes| {
            let ended = start(name, processes, folder.path());
            assert!(ended.status.success(), "{processes} processes: {}", ended.text);
            let of = |rank| fs::read(folder.path().join(format!("{processes}-{rank}"))).unwrap();
            let sums = (0..processes).map(of).collect::<Vec<_>>();
            assert!(sums.iter().all(|sum| *sum == sums[0]), "{processes} processes");
            sums[0].clone()
        });
        let sums = sums.collect::<Vec<_>>();
        assert_eq!(sums[0].len(), 4 * 64 * 32 + 3 * 8);
        assert!(sums.iter().all(|sum| *sum == sums[0]));
        return;
    }
    let world = MpiCommunicator::with_bucket(4096).unwrap();
    let module: Linear<B> = LinearConfig::new(64, 32).init(&Default::default());
    let leaves = 11;
    let mut tree = TreeSum::new(leaves);
    for index in shard(leaves, world.size(), world.rank()) {
        tree.leaf(index, leaf(&module, index)).unwrap();
    }
    let sum = reduce(&world, Reduction::Exact, tree).unwrap();
    let values = sum.gradients.values().iter().flat_map(|value| value.to_le_bytes());
    let rest = [sum.loss, sum.score, sum.weight].into_iter().flat_map(f64::to_le_bytes);
    let bytes = values.chain(rest).collect::<Vec<_>>();
    let folder = env::var(FOLDER).unwrap();
    let name = format!("{}-{}", world.size(), world.rank());
    fs::write(Path::new(&folder).join(name), bytes).unwrap();
}

#[test]
fn processes_that_disagree_all_end_with_the_reason() {
    let name = "processes_that_disagree_all_end_with_the_reason";
    if !is_started(name) {
        let ended = start(name, 3, Path::new("."));
        assert!(!ended.status.success(), "{}", ended.text);
        let reason = "the processes differ in the settings: settings.seed is 7 in process 0 and 8 \
                      in process 2";
        assert!(ended.text.contains(reason), "{}", ended.text);
        return;
    }
    let world = MpiCommunicator::world().unwrap();
    let seed = if world.rank() == 2 { 8 } else { 7 };
    let error = agree(&world, &json!({"rate": 0.1, "seed": seed})).unwrap_err();
    println!("{error}");
    world.barrier().unwrap();
    drop(world);
    exit(3);
}

/// What ends one process must end the others, which wait for it.
fn all_end_when_one_does(name: &str) {
    let ended = start(name, 3, Path::new("."));
    assert!(!ended.status.success(), "{}", ended.text);
    assert!(ended.text.contains("process 1 ends"), "{}", ended.text);
    assert!(!ended.text.contains("nobody waited"), "{}", ended.text);
    assert!(ended.took < Duration::from_secs(60), "{:?}", ended.took);
}

#[test]
fn one_process_that_aborts_ends_all() {
    if !is_started("one_process_that_aborts_ends_all") {
        return all_end_when_one_does("one_process_that_aborts_ends_all");
    }
    let world = MpiCommunicator::world().unwrap();
    if world.rank() == 1 {
        println!("process 1 ends");
        world.abort(7);
    }
    world.barrier().unwrap();
    println!("nobody waited");
}

#[test]
fn one_process_that_panics_ends_all() {
    if !is_started("one_process_that_panics_ends_all") {
        return all_end_when_one_does("one_process_that_panics_ends_all");
    }
    let world = MpiCommunicator::world().unwrap();
    if world.rank() == 1 {
        panic!("process 1 ends");
    }
    world.barrier().unwrap();
    println!("nobody waited");
}

/// Glyphs, of which one task has supports that are no numbers.
struct Damaged {
    episodes: EpisodeSampler,
    task: Option<u64>,
}

impl TaskSource for Damaged {
    type Kind = Classification;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        let damaged = self.task.filter(|task| indices.contains(task));
        let lane = damaged.map(|task| (task - indices.start) as usize);
        let mut batch = TaskSource::tasks::<B>(&self.episodes, indices, device)?;
        if let Some(lane) = lane {
            let images = batch.support.images.clone();
            let [_, n, c, h, w] = images.dims();
            let nan = Tensor::full([1, n, c, h, w], f32::NAN, device);
            let lane = lane..lane + 1;
            batch.support.images = images.slice_assign([lane, 0..n, 0..c, 0..h, 0..w], nan);
        }
        Ok(batch)
    }

    fn test_batch_size(&self) -> usize {
        self.episodes.test_batch_size()
    }

    fn settings(&self) -> Value {
        self.episodes.settings()
    }
}

type Net = Maml<B, Classifier<B, Conv4<B>>>;
type Trainer = MetaTrainer<Net, FusedOptimizer<Adam, Net, B>, f64, Damaged>;

/// Two steps of four tasks, of which the second process of two has the last two.
fn trainer(task: Option<u64>) -> Trainer {
    let device = Default::default();
    B::seed(&device, 5);
    let encoder = Conv4Config::omniglot().with_channels(4).with_blocks(2);
    let classifier = Classifier::new(encoder.init(&device), encoder.features(), 3, &device);
    let learner = Maml::first_order(classifier, InnerLoop::new(2, 0.1)).unwrap();
    let glyphs = Glyphs::generate(&GlyphsConfig { characters: 4, ..GlyphsConfig::default() });
    let episodes = glyphs.train.sampler(Protocol::new(3, 1).with_queries(1), 3).unwrap();
    MetaTrainer::new(learner, Adam::new().init())
        .episodes(Damaged { episodes, task })
        .meta_batch(4)
        .micro_batch(1)
        .steps(2)
        .observe(|_| {})
}

#[test]
fn a_task_that_diverges_in_another_process_ends_all_with_its_number_and_step() {
    let name = "a_task_that_diverges_in_another_process_ends_all_with_its_number_and_step";
    if !is_started(name) {
        let ended = start(name, 2, Path::new("."));
        assert!(!ended.status.success(), "{}", ended.text);
        for rank in 0..2 {
            let told = format!(
                "process {rank}: the loss is NaN at step 1, in the episodes from 4: \
                                task 2 diverged in its inner step 1"
            );
            assert!(ended.text.contains(&told), "{told}: {}", ended.text);
        }
        assert!(ended.took < Duration::from_secs(60), "{:?}", ended.took);
        return;
    }
    let world = Arc::new(MpiCommunicator::world().unwrap());
    // The third task of the second step.
    let error = trainer(Some(6)).communicator(world.clone()).fit::<B>().unwrap_err();
    println!("process {}: {error}", world.rank());
    let expected = Divergence { task: 2, step: 1 };
    assert!(
        matches!(error, TrainError::NonFiniteLoss { divergence: Some(found), .. } if found == expected)
    );
    world.barrier().unwrap();
    drop(world);
    exit(3);
}

#[test]
fn one_of_several_does_not_train_by_itself_unless_told_to() {
    in_processes("one_of_several_does_not_train_by_itself_unless_told_to", || {
        let Launch { rank, size, by } = launched().unwrap();
        assert_eq!(by, "mpirun (Open MPI)");
        let trained = trainer(None).fit::<B>();
        match size {
            1 => assert_eq!(trained.unwrap().report.replicas, 1),
            _ => {
                let expected = ParallelError::NotJoined { rank, size, by };
                let error = trained.unwrap_err();
                assert!(
                    matches!(&error, TrainError::Parallel(found) if *found == expected),
                    "{error}"
                );
            }
        }
        let alone = trainer(None).communicator(Arc::new(Solo)).fit::<B>().unwrap();
        assert_eq!(alone.report.replicas, 1);
    });
}
