//! `fewshot runs`

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{fewshot, stderr};

fn runs(command: &str, paths: &[&Path], more: &[&str]) -> Output {
    let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    fewshot(&[&["runs", command][..], &paths, more].concat())
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&text(output)).expect("standard output is one JSON value")
}

/// The one line that a failure consists of.
fn complaint(output: &Output, code: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("error: ") && text.lines().count() == 1, "{text}");
    text
}

/// Cells of the row that begins with `name`; two spaces part columns.
fn row(table: &str, name: &str) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> {
        line.split("  ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let row = table.lines().map(cells).find(|cells| cells.first().is_some_and(|it| it == name));
    row.unwrap_or_else(|| panic!("no row {name}: {table}"))
}

/// A run of a moment.
fn train(run: &Path, more: &[&str]) {
    let size = ["--train-ways", "5", "--train-queries", "2", "--queries", "5"];
    let validation = ["--validate-every", "2", "--validation-episodes", "5"];
    let out = ["--eval-episodes", "2", "--out", run.to_str().unwrap()];
    let output = fewshot(&[&["train"], &size[..], &validation, &out, more].concat());
    text(&output);
}

/// A run made by hand: 20 steps are wanted, each took half a second.
fn made(folder: &Path, name: &str, steps: u64, measure: &str) -> PathBuf {
    let run = folder.join(name);
    fs::create_dir_all(&run).unwrap();
    let config =
        json!({"steps": 20, "meta_batch": steps, "user": {"method": "maml", "none": null}});
    fs::write(run.join("config.json"), config.to_string()).unwrap();
    let step = |step: u64| {
        let accuracy = (measure == "accuracy").then_some(75.0);
        let line = json!({
            "step": step, "loss": 0.5, "accuracy": accuracy, "learning_rate": 0.1,
            "phase_ms": {"forward": 200.0, "backward": 300.0},
        });
        format!("{line}\n")
    };
    let mut metrics: String = (1..=steps).map(step).collect();
    if steps > 1 {
        let found = json!({"measure": measure, "mean": 0.25, "ci95": 0.125});
        metrics += &format!("{}\n", json!({"step": steps, "validation": found}));
    }
    fs::write(run.join("metrics.jsonl"), metrics).unwrap();
    run
}

/// As if its metrics had been written so long ago.
fn age(run: &Path, hours: u64) {
    let metrics = File::options().append(true).open(run.join("metrics.jsonl")).unwrap();
    metrics.set_modified(SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
}

#[test]
fn trained_runs_are_listed_shown_compared_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let [slow, fast] = ["slow", "fast"].map(|name| folder.path().join(name));
    train(&slow, &["--steps", "4", "--lr", "0.0001"]);
    train(&fast, &["--steps", "2", "--lr", "0.01", "--train-shots", "2"]);
    age(&fast, 1);

    let table = text(&runs("list", &[folder.path()], &[]));
    assert_eq!(row(&table, slow.to_str().unwrap())[1..5], ["protonet", "glyphs", "done", "4 of 4"]);
    assert_eq!(row(&table, fast.to_str().unwrap())[1..5], ["protonet", "glyphs", "done", "2 of 2"]);
    assert!(table.find("slow") < table.find("fast"), "the newest first: {table}");
    let listed = report(&runs("list", &[folder.path()], &["--json"]));
    assert_eq!((&listed[0]["name"], &listed[1]["name"]), (&json!("slow"), &json!("fast")));
    assert_eq!(listed[0]["steps"], 4);
    assert_eq!(listed[0]["last"]["step"], 4);
    assert!(listed[0]["best"]["mean"].as_f64().unwrap() >= 20.0, "{listed}");
    assert!(listed[0]["seconds_left"].is_null() && listed[0]["seconds"].as_f64().unwrap() > 0.0);

    let shown = text(&runs("show", &[&slow], &[]));
    assert_eq!(row(&shown, "learning_rate")[1], "0.0001");
    assert_eq!(row(&shown, "test.ways")[1], "5");
    assert_eq!(row(&shown, "state")[1], "done");
    assert!(!shown.contains("null") && !shown.contains("inner"), "{shown}");
    let loss = report(&runs("show", &[&slow], &["--json"]))["loss"].as_f64().unwrap();
    assert_eq!(row(&shown, "loss (last 100 steps)")[1], format!("{loss:.4}"));

    let compared = text(&runs("compare", &[&slow, &fast], &[]));
    assert_eq!(row(&compared, "RUN")[1..], ["slow", "fast"]);
    assert_eq!(row(&compared, "learning_rate")[1..], ["0.0001", "0.01"]);
    assert_eq!(row(&compared, "tasks.protocol.shots")[1..], ["1", "2"]);
    assert_eq!(row(&compared, "steps")[1..], ["4 of 4", "2 of 2"]);
    assert!(!compared.contains("seed") && !compared.contains("method"), "{compared}");
    let compared = report(&runs("compare", &[&slow, &fast], &["--json"]));
    assert_eq!(compared[1]["settings"], json!({"learning_rate": 0.01, "tasks.protocol.shots": 2}));

    let plot = folder.path().join("both.svg");
    text(&runs("plot", &[&slow, &fast], &["--to", plot.to_str().unwrap()]));
    let drawing = fs::read_to_string(plot).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("validation accuracy (%)"));
    for name in ["slow", "fast"] {
        assert_eq!(drawing.matches(name).count(), 2, "a legend in each panel: {name}");
    }
}

#[test]
fn runs_are_listed_by_paths_that_every_command_takes() {
    let folder = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        text(&command.args(args).current_dir(folder.path()).output().unwrap())
    };
    for steps in ["2", "3"] {
        let size = ["--train-ways", "5", "--train-queries", "2", "--queries", "5"];
        let brief = ["--validation-episodes", "2", "--eval-episodes", "2", "--steps", steps];
        here(&[&["train"], &size[..], &brief].concat());
    }
    let table = here(&["runs", "list"]);
    let names = table.lines().skip(1).map(|line| line.split("  ").next().unwrap());
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 2, "{table}");
    for name in &names {
        assert_eq!(row(&here(&["runs", "show", name]), "state")[1], "done");
        assert!(here(&["eval", name, "--episodes", "2"]).starts_with("accuracy on test classes"));
    }
    here(&["runs", "compare", names[0], names[1]]);
    here(&["runs", "plot", names[0], names[1], "--to", "both.svg"]);
    let wide = image::RgbImage::from_fn(28, 28, |x, y| image::Rgb([x as u8, y as u8, 9]));
    let high = image::RgbImage::from_fn(28, 28, |x, y| image::Rgb([9, 200 - x as u8, y as u8]));
    for (class, picture) in [("wide", &wide), ("high", &high)] {
        fs::create_dir_all(folder.path().join("own").join(class)).unwrap();
        picture.save(folder.path().join("own").join(class).join("1.png")).unwrap();
    }
    here(&["adapt", "--backbone", names[0], "--support", "own", "--out", "own.fewshot"]);
    assert!(folder.path().join("own.fewshot").exists());
}

#[test]
fn a_resumed_run_wants_as_many_steps_as_it_was_last_told() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    train(&run, &["--steps", "2"]);
    train(&run, &["--steps", "4", "--resume"]);
    let shown = report(&runs("show", &[&run], &["--json"]));
    assert_eq!((&shown["steps"], &shown["steps_wanted"]), (&json!(4), &json!(4)));
    train(&run, &["--steps", "4", "--resume"]);
}

#[test]
fn a_stopped_run_and_one_that_goes_on_tell_the_time_left() {
    let folder = tempfile::tempdir().unwrap();
    let stopped = made(folder.path(), "stopped", 8, "squared_error");
    let running = made(folder.path(), "running", 1, "accuracy");
    age(&stopped, 1);
    let lock = File::create(running.join("run.lock")).unwrap();
    lock.lock().unwrap();
    let table = text(&runs("list", &[folder.path()], &[]));
    let validation = "0.2500 ± 0.1250 squared error (step 8)";
    let names = [&stopped, &running].map(|run| run.to_str().unwrap());
    let expected =
        [names[0], "maml", "-", "stopped", "8 of 20", validation, validation, "00:00:06"];
    assert_eq!(row(&table, names[0]), expected);
    let expected = [names[1], "maml", "-", "running", "1 of 20", "-", "-", "00:00:09"];
    assert_eq!(row(&table, names[1]), expected);
    let shown = report(&runs("show", &[&stopped], &["--json"]));
    assert_eq!((&shown["seconds"], &shown["seconds_left"]), (&json!(4.0), &json!(6.0)));
    assert_eq!((&shown["loss"], &shown["accuracy"]), (&json!(0.5), &Value::Null));
}

#[test]
fn a_run_that_was_killed_in_the_middle_of_a_line_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = made(folder.path(), "run", 3, "accuracy");
    let metrics = run.join("metrics.jsonl");
    let whole = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, whole.clone() + "{\"step\":4,\"lo").unwrap();
    assert_eq!(report(&runs("show", &[&run], &["--json"]))["steps"], 3);
    fs::write(&metrics, whole.replacen("\"loss\"", "lost", 1)).unwrap();
    let error = complaint(&runs("show", &[&run], &[]), 1);
    assert!(error.contains("metrics.jsonl, line 1: "), "{error}");
    let other = made(folder.path(), "other", 3, "accuracy");
    let output = runs("list", &[folder.path()], &[]);
    assert!(complaint(&output, 1).contains("metrics.jsonl, line 1: "));
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        row(&table, other.to_str().unwrap())[4],
        "3 of 20",
        "one broken run does not hide another"
    );
}

#[test]
fn what_holds_no_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path();
    assert!(complaint(&runs("list", &[empty], &[]), 1).contains("no runs in "));
    assert!(complaint(&runs("show", &[empty], &[]), 1).contains("it has no config.json"));
    let nowhere = empty.join("nowhere");
    for command in ["list", "show"] {
        assert!(complaint(&runs(command, &[&nowhere], &[]), 1).contains("there is no folder "));
    }
    let run = made(empty, "run", 1, "accuracy");
    fs::remove_file(run.join("metrics.jsonl")).unwrap();
    assert!(complaint(&runs("show", &[&run], &[]), 1).contains("it has no metrics.jsonl"));
    fs::write(run.join("metrics.jsonl"), "").unwrap();
    fs::write(run.join("config.json"), "mine").unwrap();
    assert!(complaint(&runs("show", &[&run], &[]), 1).contains("config.json is not the settings"));
    let to = empty.join("no/such/plot.svg");
    let other = made(empty, "other", 2, "accuracy");
    let output = runs("plot", &[&other], &["--to", to.to_str().unwrap()]);
    assert!(complaint(&output, 1).contains("plot.svg"));
}

#[test]
fn runs_that_cannot_be_put_side_by_side_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = [("a/run", "accuracy"), ("b/run", "squared_error")]
        .map(|(name, measure)| made(folder.path(), name, 3, measure));
    let plot = folder.path().join("plot.svg");
    let to = ["--to", plot.to_str().unwrap()];
    let error = complaint(&runs("plot", &[&b, &a], &to), 2);
    let judged = format!("{} is judged by accuracy and {}", named("a"), named("b"));
    assert!(error.contains(&judged) && !plot.exists(), "{error}");
    let compared = text(&runs("compare", &[&a, &b], &[]));
    assert_eq!(row(&compared, "RUN")[1..], [named("a"), named("b")]);
    let twice = a.join(".");
    assert!(complaint(&runs("compare", &[&a, &twice], &[]), 2).contains("is named twice"));
    let eleven = [a.as_path(); 11];
    for output in [
        runs("compare", &[&a], &[]),
        runs("plot", &[&a], &[]),
        runs("plot", &[], &to),
        runs("plot", &eleven, &to),
        runs("show", &[], &[]),
        fewshot(&["runs"]),
    ] {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

fn named(folder: &str) -> String {
    PathBuf::from(folder).join("run").display().to_string()
}

#[test]
fn the_help_documents_the_contract() {
    let help = text(&fewshot(&["runs", "--help"]));
    for word in ["list", "show", "compare", "plot", "steps_wanted", "seconds_left", "Exit code"] {
        assert!(help.contains(word), "{word} is not in the help");
    }
}
