use std::fs::{self, File};
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A run that wants 20 steps and validates every second one.
fn run(metrics: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"steps": 20, "patience": 3, "validation": {"every": 2}, "user": {"a": 1}});
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::write(folder.path().join("metrics.jsonl"), metrics).unwrap();
    folder
}

fn step(step: u64, loss: f32, milliseconds: f64) -> String {
    let phases = json!({"forward": milliseconds, "save": milliseconds});
    let rate = 1e-3;
    let metrics = json!({"step": step, "loss": loss, "accuracy": 50, "learning_rate": rate, "phase_ms": phases});
    format!("{metrics}\n")
}

fn validation(step: u64, mean: f64) -> String {
    let score = json!({"measure": "accuracy", "mean": mean, "ci95": 0.5});
    format!("{}\n", json!({"step": step, "validation": score}))
}

fn read(folder: &TempDir) -> RunHistory {
    RunHistory::read(folder.path()).unwrap()
}

fn refused(folder: &Path) -> String {
    RunHistory::read(folder).unwrap_err().to_string()
}

#[test]
fn a_run_tells_its_steps_its_time_and_its_best_validation() {
    let metrics = [
        step(1, 3.0, 100.0),
        step(2, 2.0, 300.0),
        validation(2, 60.0),
        step(3, 1.0, 500.0),
        step(4, 1.0, 300.0),
        validation(4, 55.0),
    ];
    let folder = run(&metrics.concat());
    let history = read(&folder);
    assert_eq!((history.steps_done(), history.steps_wanted()), (4, Some(20)));
    assert_eq!(history.state(), Some(RunState::Stopped));
    assert_eq!(history.best().unwrap().step, 2);
    assert_eq!(history.validations().last().unwrap().step, 4);
    assert!((history.seconds() - 2.4).abs() < 1e-9);
    // 0.6 s a step.
    assert!((history.seconds_left().unwrap() - 0.6 * 16.0).abs() < 1e-9);
    assert_eq!(history.mean_loss(), Some(1.75));
    assert_eq!(history.mean_accuracy(), Some(50.0));
    assert_eq!(history.loss_curve(), [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0), (4.0, 1.0)]);
    assert_eq!(history.validation_curve(), [(2.0, 60.0), (4.0, 55.0)]);
    assert_eq!(history.measure(), Some(Measure::Accuracy));
    assert_eq!(history.config()["user"]["a"], 1);
    assert_eq!(history.name(), folder.path().file_name().unwrap().to_str().unwrap());
}

#[test]
fn only_the_last_steps_count_for_means_and_for_the_time_left() {
    let early = (1..=10).map(|index| step(index, 9.0, 1e6));
    let late = (11..=110).map(|index| step(index, 0.5, 50.0));
    let folder = run(&early.chain(late).collect::<String>());
    let config = json!({"steps": 210}).to_string();
    fs::write(folder.path().join("config.json"), config).unwrap();
    assert_eq!(read(&folder).mean_loss(), Some(0.5));
    assert!((read(&folder).seconds_left().unwrap() - 10.0).abs() < 1e-9);
}

#[test]
fn a_run_is_going_on_as_long_as_its_folder_is_locked() {
    let folder = run(&step(20, 1.0, 1.0));
    assert_eq!(read(&folder).state(), Some(RunState::Done));
    assert!(!folder.path().join("run.lock").exists(), "reading makes no file");
    let lock = File::create(folder.path().join("run.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(read(&folder).state(), Some(RunState::Running));
    lock.unlock().unwrap();
    assert_eq!(read(&folder).state(), Some(RunState::Done));
    assert_eq!(read(&folder).seconds_left(), None);
}

#[test]
fn a_run_that_lost_its_patience_is_done() {
    let means = [60.0, 70.0, 70.0, 65.0, 69.0];
    let lines = |count: u64| (1..=count).zip(means).map(|(step, mean)| validation(step, mean));
    let state = |count| read(&run(&lines(count).collect::<String>())).state();
    assert_eq!(state(4), Some(RunState::Stopped));
    assert_eq!(state(5), Some(RunState::Done));
}

#[test]
fn a_run_that_has_not_noted_its_steps_is_neither_done_nor_stopped() {
    let folder = run(&step(5, 1.0, 1.0));
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    let history = read(&folder);
    assert_eq!(
        (history.state(), history.steps_wanted(), history.seconds_left()),
        (None, None, None)
    );
}

#[test]
fn nothing_is_known_of_a_run_without_a_step() {
    let history = read(&run(""));
    assert_eq!((history.steps_done(), history.seconds()), (0, 0.0));
    assert_eq!(
        (history.measure(), history.mean_loss(), history.seconds_left()),
        (None, None, None)
    );
    assert!(history.best().is_none() && history.loss_curve().is_empty());
}

#[test]
fn a_last_line_that_was_cut_off_is_left_out() {
    let whole = step(1, 1.0, 1.0) + &step(2, 1.0, 1.0);
    for cut in [1, 2, 20, 60] {
        assert_eq!(read(&run(&whole[..whole.len() - cut])).steps_done(), u64::from(cut == 1) + 1);
    }
}

#[test]
fn a_broken_line_is_named_with_its_file() {
    for broken in ["{\"step\":2,\"lo\n", "\n", "{}\n", "[1]\n"] {
        let folder = run(&(step(1, 1.0, 1.0) + broken + &step(3, 1.0, 1.0)));
        let error = refused(folder.path());
        let path = folder.path().join("metrics.jsonl");
        assert!(error.starts_with(&format!("{}, line 2: ", path.display())), "{error}");
    }
}

#[test]
fn what_is_no_run_is_told_with_what_is_missing() {
    let folder = run("");
    fs::write(folder.path().join("config.json"), "[]").unwrap();
    assert!(refused(folder.path()).contains("config.json is not the settings of a run"));
    fs::remove_file(folder.path().join("metrics.jsonl")).unwrap();
    assert!(refused(folder.path()).ends_with("holds no run: it has no metrics.jsonl"));
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(refused(folder.path()).ends_with("holds no run: it has no config.json"));
    let nowhere = folder.path().join("nowhere");
    assert_eq!(refused(&nowhere), format!("there is no folder {}", nowhere.display()));
    assert!(RunHistory::folders(&nowhere).is_err());
}

#[test]
fn the_runs_in_a_folder_are_those_directly_in_it() {
    let all = tempfile::tempdir().unwrap();
    for (name, files) in [
        ("b", &["config.json", "metrics.jsonl"][..]),
        ("a", &["config.json", "metrics.jsonl"]),
        ("half", &["config.json"]),
        ("below/deep", &["config.json", "metrics.jsonl"]),
    ] {
        fs::create_dir_all(all.path().join(name)).unwrap();
        files.iter().for_each(|file| fs::write(all.path().join(name).join(file), "").unwrap());
    }
    let expected = ["a", "b"].map(|name| all.path().join(name));
    assert_eq!(RunHistory::folders(all.path()).unwrap(), expected);
}
