//! `fewshot plasticity run`

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use super::{code, complaint, fewshot, json as report, stderr};

const LEVELS: &str = "40,8,4";

/// A run with a plot in a folder that goes away.
fn paced(periods: &str, words: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let small = ["plasticity", "run", "--levels", LEVELS, "--periods", periods, "--plot"];
    let words: Vec<&str> = words.split_whitespace().collect();
    fewshot(&[&small[..], &[plot.to_str().unwrap()], &words].concat())
}

fn run(words: &str) -> Output {
    paced("1,3", words)
}

fn numbers(report: &Value, key: &str) -> Vec<f64> {
    let layers = report["layers"].as_array().unwrap().iter();
    layers.map(|layer| layer[key].as_f64().unwrap()).collect()
}

#[test]
fn a_hierarchy_learns_and_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let words = ["plasticity", "run", "--levels", LEVELS, "--periods", "1,3", "--steps", "400"];
    let with = ["--rule", "subspace", "--json", "--plot", plot.to_str().unwrap()];
    let learned = report(&fewshot(&[&words[..], &with].concat()));
    assert_eq!(numbers(&learned, "firings"), [400.0, 134.0]);
    assert!(numbers(&learned, "explained_variance")[0] > 0.9, "{learned}");
    let drawing = fs::read_to_string(&plot).unwrap();
    assert!(drawing.contains("row norm") && drawing.contains("layer 2"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn every_rule_moves_the_weights_and_components_explain_more_than_chance() {
    let still = report(&run("--rate 0 --steps 10 --json"));
    for rule in ["hebb", "covariance", "oja", "subspace", "sanger", "bcm"] {
        let steps = if rule == "bcm" { 10_000 } else { 1200 };
        let learned = report(&run(&format!("--rule {rule} --steps {steps} --json")));
        let [before, after] = [&still, &learned].map(|report| numbers(report, "row_norm"));
        for (before, after) in before.iter().zip(&after) {
            assert!((after / before - 1.0).abs() > 0.01, "{rule}: {before} became {after}");
            assert!(*after < 100.0, "{rule}: {after}");
        }
        if ["oja", "subspace", "sanger", "bcm"].contains(&rule) {
            let [before, after] = [&still, &learned].map(|r| numbers(r, "explained_variance"));
            assert!(after[0] > before[0] + 0.1, "{rule}: {before:?} became {after:?}");
        }
        assert_eq!(learned["rule"], rule);
    }
}

#[test]
fn weights_that_leave_the_finite_numbers_end_the_run() {
    for rule in ["hebb", "covariance", "bcm"] {
        let output = run(&format!("--rule {rule} --rate 20 --steps 3000"));
        let line = complaint(&output);
        assert!(line.contains("layer 1") && line.contains("a rate of 20"), "{line}");
        let after = line.split("by tick ").nth(1).unwrap();
        let tick: usize = after.split(' ').next().unwrap().parse().unwrap();
        assert!(tick < 3000 && tick.is_multiple_of(60), "{line}");
        assert!(output.stdout.is_empty());
    }
    let dying = report(&run("--rule hebb --rate 0.1 --decay 2 --steps 300 --json"));
    assert!(numbers(&dying, "row_norm").iter().all(|norm| *norm < 1e-3), "{dying}");
}

#[test]
fn warnings_are_for_the_rules_that_they_are_about() {
    let said = |words: &str| stderr(&run(&format!("{words} --steps 20")));
    assert!(said("--rule bcm --rate 0.1").contains("1 / tau should be well above the rate"));
    assert!(!said("--rule bcm").contains("tau"));
    assert!(!said("--rule bcm --rate 0.05 --tau 5").contains("tau"));
    assert!(said("--rule subspace --rate 1.5").contains("beyond 1"));
    assert!(!said("--rule hebb --rate 1.5").contains("beyond 1"));
}

#[test]
fn whole_sequences_fire_as_often_as_is_said() {
    for (steps, periods, expected) in
        [(40, "1,7", [40.0, 6.0]), (100, "2,6", [50.0, 17.0]), (5, "1,7", [5.0, 1.0])]
    {
        for whole in ["", "--whole"] {
            let words = format!("--steps {steps} --rate 0 --json {whole}");
            let told = report(&paced(periods, &words));
            assert_eq!(numbers(&told, "firings"), expected, "{periods}: {words}");
        }
    }
}

#[test]
fn what_is_explained_does_not_depend_on_the_number_of_steps() {
    let explained = |steps: usize| {
        let report = report(&run(&format!("--rate 0 --steps {steps} --json")));
        numbers(&report, "explained_variance")
    };
    assert_eq!(explained(3), explained(700));
}

#[test]
fn every_aggregate_gain_and_batch_is_told_of() {
    for (aggregate, gain, batch) in [("last", 0.0, 3), ("mean", -0.5, 2), ("concat", 0.0, 1)] {
        let words = format!("--aggregate {aggregate} --top-down {gain} --batch {batch} --seed 5");
        let told = report(&run(&format!("{words} --steps 40 --threads 1 --json")));
        let expected = json!([aggregate, gain, batch, 5, false, 1, 40, 0.1, 0.0]);
        let keys = [
            "aggregate",
            "top_down",
            "batch",
            "seed",
            "whole",
            "threads",
            "steps",
            "rate",
            "decay",
        ];
        assert_eq!(json!(keys.map(|key| &told[key])), expected);
        let output = run(&format!("{words} --steps 40"));
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("layer 1: 8 neurons, period 1, 40 firings, row norm "),
            "{text}"
        );
        assert!(
            lines[1].starts_with("layer 2: 4 neurons, period 3, 14 firings, row norm "),
            "{text}"
        );
        assert!(lines[2].starts_with("40 steps in ") && lines[2].ends_with("plot.svg"), "{text}");
        assert_eq!(lines.len(), 3);
    }
    let threads = report(&run("--steps 1 --json"))["threads"].as_u64();
    assert!(threads.is_some_and(|threads| threads >= 1));
}

#[test]
fn progress_comes_in_twenty_lines_off_a_terminal() {
    let text = stderr(&run("--steps 400"));
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(lines.len(), 20, "{text}");
    assert!(lines[19].starts_with("step 400/400") && lines[19].ends_with(" 0 s left"), "{text}");
}

#[test]
fn a_plot_that_cannot_be_drawn_is_known_before_the_run_or_told_after_the_result() {
    let missing = ["plasticity", "run", "--plot", "no/such/folder/plot.svg"];
    assert!(stderr(&fewshot(&missing)).contains("there is no such folder"));
    let folder = tempfile::tempdir().unwrap();
    let small =
        ["plasticity", "run", "--levels", "4,2", "--periods", "1", "--steps", "3", "--plot"];
    let output = fewshot(&[&small[..], &[folder.path().to_str().unwrap()]].concat());
    complaint(&output);
    assert!(String::from_utf8(output.stdout).unwrap().contains("layer 1: 2 neurons"));
}

#[test]
fn an_input_of_one_value_is_refused_in_words() {
    let words = ["plasticity", "run", "--levels", "1,4", "--periods", "1"];
    let text = stderr(&fewshot(&words));
    assert!(text.contains("--levels: the input needs at least 2 values, not 1"), "{text}");
}
