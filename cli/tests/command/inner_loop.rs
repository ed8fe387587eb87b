//! MAML and its relatives.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{BACKENDS, code, complaint, fewshot, json, small, stderr};

/// Two tasks a step.
pub fn adaptive(folder: &Path, method: &str, more: &[&str]) -> Output {
    let tiny = ["--method", method, "--steps", "2", "--validate-every", "2", "--meta-batch", "2"];
    let brief = ["--validation-episodes", "1", "--eval-episodes", "2", "--train-queries", "1"];
    small(folder, &[&tiny[..], &brief, more].concat())
}

#[test]
fn a_meta_batch_that_does_not_fit_is_refused_with_how_many_tasks_would() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    for (method, budget) in [("maml", "60MiB"), ("protonet", "60MiB")] {
        let many = ["--meta-batch", "5000", "--memory-budget", budget, "--method", method];
        let output = small(&run, &many);
        let text = stderr(&output);
        assert_eq!(code(&output), Some(1), "{text}");
        assert!(text.contains("5000 tasks do not fit 60.0 MiB"), "{text}");
        assert!(text.contains("would fit"), "{text}");
        assert!(!run.exists(), "nothing was begun");
    }
}

#[test]
fn every_method_with_an_inner_loop_trains() {
    let folder = tempfile::tempdir().unwrap();
    let methods = [
        "maml",
        "fomaml",
        "anil",
        "boil",
        "meta-sgd",
        "meta-curvature",
        "maml++",
        "imaml",
        "proto-maml",
        "cavia",
        "reptile",
    ];
    for method in methods {
        let run = folder.path().join(method);
        let report = json(&adaptive(&run, method, &["--eval-inner-steps", "2"]));
        assert_eq!(report["protocol"]["method"], method);
        assert_eq!(report["protocol"]["batch_norm"], "batch");
        assert_eq!(report["inner"]["eval_steps"], 2);
        let order = if ["fomaml", "reptile"].contains(&method) { "first" } else { "second" };
        assert_eq!(report["inner"]["order"], order, "{method}");
        assert!(report["tasks_per_s"].as_f64().unwrap() > 0.0);
        if cfg!(target_os = "linux") {
            assert!(report["peak_rss_mb"].as_f64().unwrap() > 1.0);
        }
        let run = run.to_str().unwrap();
        let again = json(&fewshot(&["eval", run, "--episodes", "2", "--json"]));
        assert_eq!(again["accuracy"], report["accuracy"], "{method}");
    }
    // Queries one by one are no longer normalised together.
    let run = folder.path().join("reptile");
    let inductive = ["eval", run.to_str().unwrap(), "--episodes", "2", "--bn", "support", "--json"];
    let inductive = json(&fewshot(&inductive));
    assert_eq!(inductive["protocol"]["batch_norm"], "support");
    let told = fewshot(&["eval", run.to_str().unwrap(), "--episodes", "2", "--bn", "support"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("support and one query"), "{told}");
    // Twenty classes want another head.
    let run = folder.path().join("maml");
    let wide = fewshot(&["eval", run.to_str().unwrap(), "--ways", "20", "--episodes", "2"]);
    assert!(complaint(&wide).contains("5 ways"), "{}", stderr(&wide));
    // Resumed by another method.
    let other = adaptive(&run, "anil", &["--resume"]);
    assert!(complaint(&other).contains("maml"), "{}", stderr(&other));
}

#[test]
fn sinusoids_are_fitted_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let run = run.to_str().unwrap();
    let train =
        ["train", "--method", "maml", "--data", "sinusoid", "--steps", "300", "--lr", "0.01"];
    let brief = ["--validate-every", "100", "--validation-episodes", "20", "--eval-episodes", "50"];
    let told = ["--shots", "10", "--inner-lr", "0.01", "--json", "--out", run];
    let report = json(&fewshot(&[&train[..], &brief, &told].concat()));
    let after = |report: &Value, steps: &str| report["mse_after"][steps].as_f64().unwrap();
    for steps in ["0", "1", "5", "10"] {
        assert!(after(&report, steps) > 0.0, "{report}");
    }
    assert!(after(&report, "10") < 0.5 * after(&report, "0"), "{report}");
    assert_eq!(report["protocol"]["train"]["meta_batch"], 25);
    let drawing = fs::read_to_string(Path::new(run).join("adapted.svg")).unwrap();
    assert!(drawing.contains("10 steps") && drawing.contains("sinusoid"));
    let again = json(&fewshot(&["eval", run, "--episodes", "50", "--json"]));
    assert_eq!(again["mse_after"], report["mse_after"]);
    let fewer = json(&fewshot(&["eval", run, "--episodes", "50", "--shots", "2", "--json"]));
    assert!(after(&fewer, "10") > after(&again, "10"), "{fewer}");
    let longer =
        json(&fewshot(&["eval", run, "--episodes", "9", "--eval-inner-steps", "3", "--json"]));
    assert!(after(&longer, "3") > 0.0 && after(&longer, "10") > 0.0, "{longer}");
    for other in [["--data", "glyphs"], ["--ways", "5"], ["--eval-inner-batch", "3"]] {
        let output = fewshot(&[&["eval", run][..], &other].concat());
        assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    }
}

#[test]
fn every_compiled_backend_adapts() {
    let folder = tempfile::tempdir().unwrap();
    for (backend, _) in BACKENDS.into_iter().filter(|(_, compiled)| *compiled) {
        let report = json(&adaptive(&folder.path().join(backend), "maml", &["--backend", backend]));
        assert_eq!(report["backend"], backend);
        assert_eq!(report["steps"], 2);
        let run = folder.path().join(format!("{backend}-sinusoid"));
        let sinusoid =
            ["train", "--method", "maml", "--data", "sinusoid", "--steps", "2", "--json"];
        let there = ["--eval-episodes", "2", "--backend", backend, "--out", run.to_str().unwrap()];
        let report = json(&fewshot(&[&sinusoid[..], &there].concat()));
        assert!(report["mse_after"]["1"].as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn reptile_steps_less_and_less() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let train = ["train", "--method", "reptile", "--data", "sinusoid", "--steps", "4"];
    let brief = ["--validation-episodes", "2", "--eval-episodes", "2", "--out"];
    fewshot(&[&train[..], &brief, &[run.to_str().unwrap()]].concat());
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rates: Vec<_> = lines.filter_map(|line| line["learning_rate"].as_f64()).collect();
    assert_eq!(rates, [1.0, 0.75, 0.5, 0.25]);
    let longer = ["--steps", "5", "--resume", "--out", run.to_str().unwrap()];
    let longer = fewshot(&[&train[..5], &longer].concat());
    assert!(complaint(&longer).contains("user.steps"), "{}", stderr(&longer));
}

#[test]
fn an_inner_loop_that_diverges_is_told_with_its_task() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let output = adaptive(&run, "maml", &["--inner-lr", "1e30"]);
    let complaint = complaint(&output);
    assert!(complaint.contains("task 0 diverged in its inner step 1"), "{complaint}");
}
