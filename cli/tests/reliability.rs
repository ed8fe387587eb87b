//! Files and requests of strangers, kept in `fuzz/`: each is refused or gives something sound, soon and in little memory.
#![cfg(all(unix, feature = "serve", feature = "flex"))]
#![recursion_limit = "256"]

#[path = "../../fuzz/src/lib.rs"]
mod inputs;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use burn::backend::Flex;
use burn::module::Module;
use fewshot::adapted::{
    AdaptedModel, EmbeddingSource, PretrainedBackbone, TrainedNetwork, UnfittedModel,
};
use fewshot::data::Features;
use fewshot::hardware::{CountingAllocator, MemoryScope};
use fewshot::learners::{Learner, ProtoNet};
use fewshot::models::Conv4Config;
use fewshot::train::{Checkpoint, Progress};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Names the input, below `fuzz/`, that `one_input` takes.
const INPUT: &str = "FEWSHOT_INPUT";

/// Time that an input of some kilobytes may take: what is slower hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that an input of some kilobytes may take: those of the largest picture that is decoded.
const MEMORY: u64 = 512 << 20;

/// Runs a program that may address 4 GiB, where the system has such a limit: what takes all memory ends by itself.
const LIMITED: &str = "ulimit -v 4194304 2>/dev/null; exec \"$0\" \"$@\"";

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 12] = [
    ("adapted", inputs::adapted),
    ("checkpoints", inputs::checkpoints),
    ("csv_lists", inputs::csv_lists),
    ("features", inputs::features),
    ("fonts", inputs::fonts),
    ("omniglot", inputs::omniglot),
    ("packs", inputs::packs),
    ("pickles", inputs::pickles),
    ("pictures", inputs::pictures),
    ("requests", inputs::requests),
    ("runs", inputs::runs),
    ("weights", inputs::weights),
];

macro_rules! every_kept_input {
    ($($target:ident $test:ident)*) => {$(
        #[test]
        fn $test() {
            withstood(stringify!($target));
        }
    )*};
}

every_kept_input! {
    adapted adapted_models_are_read_or_refused
    checkpoints checkpoints_are_read_or_refused
    csv_lists lists_of_pictures_are_read_or_refused
    features features_are_read_or_refused
    fonts fonts_are_read_or_refused
    omniglot archives_of_omniglot_are_read_or_refused
    packs packs_are_read_or_refused
    pickles pickles_are_read_or_refused
    pictures pictures_are_decoded_or_refused
    requests requests_are_answered_or_refused
    runs files_of_runs_are_read_or_refused
    weights published_weights_are_loaded_or_refused
}

#[test]
fn every_target_of_the_fuzzer_has_its_seeds_and_is_run_on_them() {
    let names = |folder: &str, ending: &str| {
        let names = fs::read_dir(fuzz().join(folder)).unwrap().map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.trim_end_matches(ending).to_owned()
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let targets = TARGETS.map(|(name, _)| name);
    assert_eq!(names("fuzz_targets", ".rs"), targets);
    assert_eq!(names("corpus", ""), targets);
}

/// Runs each input of a target in a process of its own, which may abort, and lists those that are not withstood.
fn withstood(target: &str) {
    let mut files: Vec<PathBuf> = ["corpus", "found"]
        .iter()
        .filter_map(|folder| fs::read_dir(fuzz().join(folder).join(target)).ok())
        .flat_map(|entries| entries.map(|entry| entry.unwrap().path()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no seeds");
    let failures: Vec<_> = files.iter().filter_map(|file| failure(file)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The failure of an input, if it fails.
fn failure(file: &Path) -> Option<String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", LIMITED])
        .arg(env::current_exe().unwrap())
        .args(["one_input", "--exact", "--ignored", "--nocapture"])
        .env(INPUT, file)
        .stdout(Stdio::null())
        .stderr(log.reopen().unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let state = loop {
        match child.try_wait().unwrap() {
            Some(status) if status.success() => return None,
            Some(status) => break status.to_string(),
            None if start.elapsed() > PATIENCE => {
                child.kill().unwrap();
                child.wait().unwrap();
                break format!("no end after {} s", PATIENCE.as_secs());
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let output = fs::read_to_string(log.path()).unwrap();
    Some(format!("{}: {state}\n{output}", file.display()))
}

#[test]
#[ignore = "an input that another test names"]
fn one_input() {
    let file = PathBuf::from(env::var_os(INPUT).expect("the name of an input"));
    let target = file.parent().and_then(Path::file_name).unwrap();
    let (_, run) = TARGETS.iter().find(|(name, _)| target == *name).unwrap();
    let bytes = fs::read(&file).unwrap();
    let ((), report) = MemoryScope::measure::<Flex, _>(&Default::default(), || run(&bytes));
    let (peak, limit) = (report.peak.unwrap().0, MEMORY + bytes.len() as u64);
    assert!(peak <= limit, "{peak} bytes were in use at a time, at most {limit} are wanted");
}

#[test]
#[ignore = "writes the seeds of models and checkpoints"]
fn seeds() {
    let device = Default::default();
    let network = |image| Conv4Config::new(image).with_channels(2).with_blocks(2);
    let colour = network([3, 8, 8]);
    let encoder = colour.init::<Flex>(&device);
    let backbone = PretrainedBackbone::trained(encoder, TrainedNetwork::new(colour), &device);
    let length = 8;
    let rows = |count: usize, from: f32| (0..count * length).map(|at| from + at as f32).collect();
    let examples = |classes: &[(&str, usize)]| {
        let class = |&(name, count): &(&str, usize)| (name.to_owned(), rows(count, count as f32));
        Features::new(length, classes.iter().map(class)).unwrap()
    };
    let put = |target: &str, name: &str| {
        let folder = fuzz().join("corpus").join(target);
        fs::create_dir_all(&folder).unwrap();
        folder.join(name)
    };
    for (name, method) in [("two_classes", "simpleshot"), ("by_logistic", "logistic")] {
        let examples = examples(&[("green", 3), ("red", 2)]);
        let model = AdaptedModel::adapt(backbone.clone(), method, examples).unwrap();
        model.write(put("adapted", name)).unwrap();
    }
    let source = EmbeddingSource::<Flex>::OtherProgram(device);
    let model = AdaptedModel::adapt(source, "simpleshot", examples(&[("green", 3), ("red", 2)]));
    model.unwrap().write(put("adapted", "without_network")).unwrap();
    let (method, examples) = ("simpleshot".to_owned(), examples(&[("only", 2)]));
    let begun = UnfittedModel {
        source: backbone.into(),
        method,
        examples,
        thumbnails: vec![None, None],
        digests: vec![None, None],
    };
    begun.write(put("adapted", "one_class")).unwrap();

    let learner = ProtoNet::new(inputs::encoder());
    let progress = Progress { step: 3, best: None, since_best: 0, scaler: None };
    let architecture = Learner::<Flex>::architecture(&learner);
    let checkpoint = Checkpoint::new(architecture, "nothing".into(), progress);
    let checkpoint = checkpoint.with::<Flex>("learner", Module::into_record(learner));
    checkpoint.write(&put("checkpoints", "protonet")).unwrap();
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}
