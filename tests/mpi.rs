//! Processes that MPI started. Each test starts itself again through `mpirun`, as many times as it
//! wants processes; Debian's packages openmpi-bin and libopenmpi-dev have what it needs.

#![cfg(all(feature = "mpi", feature = "flex"))]

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, exit};
use std::time::{Duration, Instant};

use burn::backend::{Autodiff, Flex};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use fewshot::models::nn::{Linear, LinearConfig};
use fewshot::parallel::{
    Communicator, Contribution, FlatGradients, Launcher, MpiCommunicator, ParallelError, Reduction,
    TreeSum, agree, launched, reduce, shard,
};
use serde_json::json;

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
fn all_processes_get_the_bytes_of_the_root() {
    in_processes("all_processes_get_the_bytes_of_the_root", || {
        let world = small_messages();
        let wanted = (0..1000).map(|index| (index % 251) as u8).collect::<Vec<_>>();
        let root = world.size() - 1;
        let mut bytes = if world.rank() == root { wanted.clone() } else { vec![9; world.rank()] };
        world.broadcast(root, &mut bytes).unwrap();
        assert_eq!(bytes, wanted);
        let (rank, size) = (world.size(), world.size());
        let error = world.broadcast(rank, &mut bytes).unwrap_err();
        assert_eq!(error, ParallelError::NoSuchRank { rank, size });
        world.barrier().unwrap();
    });
}

#[test]
fn mpi_runs_once() {
    in_processes("mpi_runs_once", || {
        let world = MpiCommunicator::world().unwrap();
        let launch = launched().unwrap();
        assert_eq!((launch.rank, launch.size), (world.rank(), world.size()));
        assert_eq!(launch.by, Launcher::OpenMpi);
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
    for index in shard(leaves, world.size(), world.rank()).unwrap() {
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
    let error = agree(&world, "settings", &json!({"rate": 0.1, "seed": seed})).unwrap_err();
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
