//! The outer step of training: optimizers, schedules, groups of parameters, averages, and stages.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{SMALL, classical, code, complaint, fewshot, json, small, stderr, untimed};

fn config(run: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("config.json")).unwrap()).unwrap()
}

/// The line of wrong usage.
fn refusal(args: &[&str]) -> String {
    let output = fewshot(args);
    assert_eq!(code(&output), Some(2), "{args:?}: {}", stderr(&output));
    stderr(&output).lines().last().unwrap().to_owned()
}

const RULES: [&str; 14] = [
    "--optimizer",
    "sgd",
    "--nesterov",
    "--weight-decay",
    "0.01",
    "--schedule",
    "cosine",
    "--warm-up",
    "2",
    "--ema",
    "0.9",
    "--freeze",
    "blocks.0",
    "--lr-decay-by-layer=0.5",
];

#[test]
fn a_run_with_another_outer_step_resumes_and_is_tested_by_its_averages() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let report = json(&small(&whole, &RULES));
    let tested = json(&fewshot(&["eval", whole.to_str().unwrap(), "--episodes", "20", "--json"]));
    assert_eq!(tested["accuracy"], report["accuracy"]);
    let kept = config(&whole);
    assert_eq!(kept["user"]["optimizer"]["name"], "sgd");
    assert_eq!(kept["user"]["curve"]["cosine"]["steps"], 12);
    assert_eq!(kept["average_decay"], 0.9);
    // The rate of the first step is a third of that of sgd.
    let first: Value = serde_json::from_str(
        untimed(&whole).lines().next().map(|line| format!("{line}}}")).unwrap().as_str(),
    )
    .unwrap();
    assert!((first["learning_rate"].as_f64().unwrap() - 0.05 / 3.0).abs() < 1e-12, "{first}");
    let longer = [&RULES[..], &["--resume", "--steps", "20"]].concat();
    let refused = complaint(&small(&whole, &longer));
    assert!(refused.contains("user.curve.cosine.steps 12"), "{refused}");
    let other = [&RULES[..9], &["--resume"]].concat();
    assert!(complaint(&small(&whole, &other)).contains("average_decay 0.9"));
}

#[test]
fn the_settings_of_a_run_without_these_options_are_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &["--optimizer", "adam", "--steps", "1"]));
    let kept = config(&run);
    let user = kept["user"].as_object().unwrap();
    for option in ["curve", "warm_up", "optimizer", "groups", "from"] {
        assert!(!user.contains_key(option), "{option}");
    }
    assert!(kept.get("average_decay").is_none());
    assert_eq!(user["halve_every"], 2000);
}

#[test]
fn training_starts_where_another_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let base = path("base");
    json(&classical(&base, &["--method", "simpleshot", "--steps", "2"]));
    let from = ["--from", base.to_str().unwrap(), "--method", "meta-baseline", "--steps", "4"];
    let output = small(&path("run"), &from);
    json(&output);
    assert!(stderr(&output).contains("encoder of "), "{}", stderr(&output));
    let kept = &config(&path("run"))["user"]["from"];
    assert_eq!(kept["method"], "simpleshot");
    assert_eq!(kept["sha256"].as_str().unwrap().len(), 64);
    let drawn = ["--method", "meta-baseline", "--steps", "4"];
    json(&small(&path("drawn"), &drawn));
    assert_ne!(untimed(&path("run")), untimed(&path("drawn")));
    // From two other folders the same run is at other relative paths.
    for (folder, base) in [(path(""), "base"), (path("drawn"), "../base")] {
        let mut resumed = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        resumed.args(SMALL).arg(path("run")).args(["--from", base]).args(&from[2..]);
        json(&resumed.arg("--resume").current_dir(folder).output().unwrap());
    }
    // What the run began with is no longer needed, and a run without it is another.
    let moved = path("moved");
    fs::rename(&base, &moved).unwrap();
    json(&small(&path("run"), &[&from[..], &["--resume"]].concat()));
    let other = complaint(&small(&path("run"), &[&drawn[..], &["--resume"]].concat()));
    assert!(other.contains("user.from"), "{other}");
    let gone = complaint(&small(&path("new"), &from));
    assert!(gone.contains("base"), "{gone}");
    let moved = moved.to_str().unwrap();
    let strided = complaint(&small(&path("new"), &["--from", moved, "--method", "maml"]));
    assert!(strided.contains("of simpleshot, is not that of maml"), "{strided}");
    assert!(!path("new").exists(), "nothing was begun");
}

#[test]
fn a_recipe_has_two_stages() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let small = "--steps 2 --validation-episodes 2 --queries 2 --eval-episodes 2";
    let recipe = format!(
        "learner = \"Meta-Baseline\"\npaper = \"Chen et al. 2021\"\ndata = \"glyphs\"\n\
         base = \"--method simpleshot --batch-size 15 {small}\"\n\
         train = \"--method meta-baseline --train-ways 5 --train-queries 2 {small}\"\n\
         seeds = [3]\n[[test]]\noptions = \"--episodes 2\"\n"
    );
    fs::write(path("two.toml"), recipe).unwrap();
    let places = ["--runs", &path("runs"), "--results", &path("results")];
    let output = fewshot(&[&["reproduce", &path("two.toml")], &places[..]].concat());
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let outcome = fs::read_to_string(path("results/two.jsonl")).unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    assert!(outcome["base"].as_str().unwrap().contains("--method simpleshot"), "{outcome}");
    assert!(outcome["train"].as_str().unwrap().contains("--from BASE"), "{outcome}");
    let kept = config(&folder.path().join("runs/two-3"));
    assert_eq!(kept["user"]["from"]["method"], "simpleshot");
}

#[test]
fn an_outer_step_that_makes_no_sense_is_refused() {
    for (options, reason) in [
        ("--momentum 0.9", "--optimizer sgd"),
        ("--optimizer sgd --momentum 1", "below 1"),
        ("--optimizer sgd --momentum 0 --nesterov", "with momentum"),
        ("--weight-decay nan", "from 0 on"),
        ("--decay-all", "--weight-decay"),
        ("--schedule multi-step", "--milestones"),
        ("--schedule multi-step --milestones 9,4", "must rise"),
        ("--schedule multi-step --milestones 4 --gamma 0", "positive"),
        ("--milestones 4", "multi-step"),
        ("--gamma 0.1", "multi-step"),
        ("--schedule cosine --halve-every 5", "--schedule halve"),
        ("--method maml --schedule halve", "--halve-every"),
        ("--schedule one-cycle --warm-up 5", "one-cycle"),
        ("--warm-up 600", "leaves nothing of 600 steps"),
        ("--encoder-lr 0", "positive"),
        ("--lr-decay-by-layer 2", "at most 1"),
        ("--ema 1", "below 1"),
        ("--freeze layer1", "blocks.0, blocks.1, blocks.2, blocks.3"),
        ("--freeze blocks", "nothing is left"),
        ("--method reptile --optimizer adam", "reptile"),
        ("--method reptile --schedule cosine", "reptile"),
        ("--data sinusoid --method maml --from x", "for images"),
        ("--data sinusoid --method maml --encoder-lr 0.1", "--encoder-lr is for images"),
        ("--from x --encoder run:y", "--encoder with weights is not for --from"),
        ("--from x --encoder resnet12:y.pth", "--encoder with weights is not for --from"),
    ] {
        let args: Vec<_> = ["train"].into_iter().chain(options.split(' ')).collect();
        let refused = refusal(&args);
        assert!(refused.contains(reason), "{options}: {refused}");
    }
}
