//! Recipes of papers' figures.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{code, fewshot, stderr};

const RECIPE: &str = r#"
learner = "Prototypical network"
paper = "Snell et al. 2017"
data = "glyphs"
train = "--train-ways 5 --train-queries 2 --steps 12 --validate-every 6 --validation-episodes 5 --queries 5 --eval-episodes 5"
seeds = [1, 2]

[[test]]
options = "--episodes 20"
paper = "99.0"
band = 20

[[test]]
options = "--shots 2 --episodes 20"
band = 100.5
"#;

fn program(folder: &Path, words: &[&str]) -> Command {
    let [runs, results] = ["runs", "results"].map(|name| folder.join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.arg("reproduce").arg("--runs").arg(runs).arg("--results").arg(results).args(words);
    command
}

fn reproduce(folder: &Path, words: &[&str]) -> Output {
    program(folder, words).output().unwrap()
}

fn recipe(folder: &Path, text: &str) -> String {
    let file = folder.join("mine.toml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn outcomes(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("results/mine.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_seed_is_trained_and_tested_once_more_when_it_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = recipe(folder.path(), RECIPE);
    let output = reproduce(folder.path(), &[&file, "--", "--threads", "1"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let found = outcomes(folder.path());
    let key =
        |of: &Value| (of["seed"].as_u64().unwrap(), of["protocol"]["shots"].as_u64().unwrap());
    assert_eq!(found.iter().map(key).collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
    for outcome in &found {
        assert_eq!(outcome["recipe"], "mine");
        assert_eq!(outcome["steps"], 12);
        assert!(outcome["value"].as_f64().unwrap() > 20.0, "{outcome}");
        assert!(outcome["train_seconds"].as_f64().unwrap() >= 0.0);
        assert!(outcome["train"].as_str().unwrap().contains("--data glyphs --train-ways 5"));
        assert!(outcome["eval"].as_str().unwrap().ends_with("--threads 1"), "{outcome}");
        assert_eq!(outcome["protocol"]["batch_norm"], "running");
        assert_eq!(outcome["date"].as_str().unwrap().len(), "2017-03-15".len());
    }
    assert_ne!(found[0]["value"], found[2]["value"], "the seeds differ");

    let last = folder.path().join("runs/mine-2/last.ckpt");
    let trained = fs::read(&last).unwrap();
    let output = reproduce(folder.path(), &[&file, "--seeds", "2"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("5-way 2-shot, seed 2"), "{printed}");
    assert!(printed.contains("paper 99.0, band 20"), "{printed}");
    assert_eq!(fs::read(last).unwrap(), trained, "nothing is trained twice");
    let again = outcomes(folder.path());
    assert_eq!(again.len(), 6);
    assert_eq!(again[4]["value"], found[2]["value"]);
}

/// Without images, which take longer to draw than this takes to train.
#[cfg(unix)]
const SINUSOIDS: &str = r#"
learner = "MAML"
paper = "Finn et al. 2017"
data = "sinusoid"
train = "--method maml --steps 200 --checkpoint-every 10 --eval-episodes 2"
seeds = [1]

[[test]]
options = "--episodes 20"
figure = "mse_after/1"
"#;

#[test]
#[cfg(unix)]
fn what_was_killed_goes_on_when_it_is_asked_again() {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::resuming::wait_for_checkpoint;
    use super::untimed;

    let [whole, killed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [whole, killed] = [whole.path(), killed.path()];
    let asked = |folder: &Path| program(folder, &[&recipe(folder, SINUSOIDS)]);
    let run = |folder: &Path| folder.join("runs/mine-1");

    // With the training that it started.
    let child = asked(killed).process_group(0).stderr(Stdio::piped()).spawn().unwrap();
    let kept = wait_for_checkpoint(&run(killed));
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    // When nobody is left to write to standard error.
    assert_eq!(code(&child.wait_with_output().unwrap()), None);
    assert!(kept < 200 && !killed.join("results").exists(), "it was over: step {kept}");

    for folder in [killed, whole] {
        let output = asked(folder).output().unwrap();
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    }
    assert_eq!(untimed(&run(killed)), untimed(&run(whole)));
    let [resumed, expected] = [killed, whole].map(|folder| {
        let mut found = outcomes(folder);
        for key in ["train_seconds", "commit", "date"] {
            found[0][key] = Value::Null;
        }
        found
    });
    assert_eq!(resumed, expected);
}

#[test]
fn what_is_no_recipe_is_refused_before_anything_is_trained() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], wanted: i32, part: &str| {
        let output = reproduce(folder.path(), words);
        let said = stderr(&output);
        assert_eq!(code(&output), Some(wanted), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    };
    refused(&["protonet"], 2, "protonet-omniglot");
    refused(&["protonet-omniglot"], 2, "--data omniglot:DIR");
    refused(&["protonet-omniglot", "--data", "sinusoid"], 2, "not on sinusoid");
    refused(&["none.toml"], 1, "none.toml");
    refused(&["--data", "glyphs"], 2, "NAME_OR_FILE");
    for (text, part) in [
        ("learner = 1", "learner"),
        (&RECIPE.replace("[1, 2]", "[]"), "no seeds"),
        (&RECIPE.replace("band", "bound"), "bound"),
        (RECIPE.split("[[test]]").next().unwrap(), "test"),
    ] {
        let file = recipe(folder.path(), text);
        refused(&[&file], 1, part);
    }
    let file = recipe(folder.path(), &RECIPE.replace("--steps 12", "--stops 12"));
    refused(&[&file], 1, "--stops");
    assert!(!folder.path().join("runs").exists() && !folder.path().join("results").exists());
}

#[test]
fn the_programs_own_recipes_are_listed_and_their_results_tabled() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().any(|line| line.starts_with("protonet-omniglot") && line.ends_with("0 of 3"))
    );
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let results = documents.join("results").display().to_string();
    let output = fewshot(&["reproduce", "--table", "--results", &results]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let document = fs::read_to_string(documents.join("learners.md")).unwrap();
    assert!(
        document.contains(table.trim()),
        "docs/learners.md has not what `fewshot reproduce --table` prints:\n{table}"
    );
}

#[test]
fn a_table_has_the_mean_over_seeds_and_how_far_they_are_apart() {
    let result = |seed: u64, value: f64, ci95: f64| {
        let line = json!({
            "recipe": "protonet-omniglot", "learner": "Prototypical network",
            "options": "--ways 5 --shots 1", "figure": "accuracy", "value": value, "ci95": ci95,
            "seed": seed, "protocol": {"data": "omniglot", "ways": 5, "shots": 1},
            "selected_by": null, "steps": 2, "checkpoint_step": 2, "train_seconds": 600 * seed,
            "train": "", "eval": "", "commit": if seed < 3 { "c0ffee" } else { "decade" }, "version": "0.1.0",
            "machine": null, "date": "2017-03-15",
        });
        format!("{line}\n")
    };
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    fs::create_dir(&results).unwrap();
    // Of seed 1 the last one counts.
    let lines =
        [result(1, 50.0, 9.0), result(3, 98.5, 0.3), result(1, 99.5, 0.1), result(2, 99.0, 0.2)];
    fs::write(results.join("protonet-omniglot.jsonl"), lines.concat()).unwrap();
    let output = reproduce(folder.path(), &["--table"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let row = "| 99.00 ± 0.20, deviation 0.50 over 3 seeds | 1, 2, 3 | 20 | c0ffee, decade |\n";
    assert!(table.ends_with(row) && table.lines().count() == 3, "{table}");
}

#[test]
fn a_broken_line_of_results_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    fs::create_dir(&results).unwrap();
    fs::write(results.join("protonet-omniglot.jsonl"), "{}\n").unwrap();
    let output = reproduce(folder.path(), &["--table"]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).contains("protonet-omniglot.jsonl, line 1"), "{}", stderr(&output));
}
