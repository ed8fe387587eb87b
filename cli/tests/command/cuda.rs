//! The command on CUDA, beside the same on a processor.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{fewshot, json, untimed};

/// Difference of losses from those of a processor, by their size.
const TOLERANCE: f64 = 1e-4;

/// Tasks of few images for a narrow network, which a card in software learns in a second.
const IMAGES: &str = "--encoder conv4:4 --train-queries 2 --queries 2 --steps 3 --validate-every 2 \
                      --validation-episodes 2 --checkpoint-every 1 --eval-episodes 4";

const SINUSOIDS: &str = "--method maml --data sinusoid --meta-batch 2 --steps 3 --validate-every 2 \
                         --validation-episodes 2 --checkpoint-every 1 --eval-episodes 2";

/// Report of training on a backend.
fn train(backend: &str, run: &Path, words: &str) -> Value {
    let there = format!("train --json --backend {backend} --out {} {words}", run.display());
    let report = json(&fewshot(&there.split_whitespace().collect::<Vec<_>>()));
    assert_eq!(report["backend"], backend);
    report
}

/// Report of a test of a run on a backend.
fn test(backend: &str, run: &Path) -> Value {
    let args = ["eval", run.to_str().unwrap(), "--backend", backend, "--episodes", "4", "--json"];
    json(&fewshot(&args))
}

/// The losses of steps, and the means of validations.
fn figures(run: &Path) -> Vec<f64> {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let figure = |line: Value| line["loss"].as_f64().or(line["validation"]["mean"].as_f64());
    lines.map(|line| figure(line).unwrap()).collect()
}

fn are_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let off = (found - expected).abs() / expected.abs();
        assert!(off < TOLERANCE, "{found}, not {expected}");
    }
}

/// From the parameters of one run, since backends draw different ones.
fn trains_as_on_a_processor(method: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [start, flex, cuda] = ["start", "flex", "cuda"].map(|name| folder.path().join(name));
    let words = format!("{method} {IMAGES}");
    train("flex", &start, &format!("{words} --steps 1"));
    let from = format!("{words} --from {}", start.join("last.ckpt").display());
    let reports = [("flex", &flex), ("cuda", &cuda)].map(|(name, run)| train(name, run, &from));
    let expected = figures(&flex);
    assert_eq!(expected.len(), 5, "three steps and two validations");
    are_near(&figures(&cuda), &expected);
    let accuracies = reports.map(|report| report["accuracy"].as_f64().unwrap());
    are_near(&accuracies[1..], &accuracies[..1]);
}

/// In two parts, without one that was stopped.
fn goes_on_as_if_it_had_not_stopped(words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let expected = train("cuda", &whole, words);
    train("cuda", &parts, &format!("{words} --steps 2"));
    let report = train("cuda", &parts, &format!("{words} --resume"));
    assert_eq!(untimed(&parts), untimed(&whole));
    for key in ["accuracy", "mse_after"] {
        assert_eq!(report[key], expected[key]);
    }
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn proto_nets_train_as_on_a_processor() {
    trains_as_on_a_processor("--method protonet --train-ways 5");
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn maml_trains_as_on_a_processor() {
    trains_as_on_a_processor("--method maml --meta-batch 2");
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn plastic_connections_train_as_on_a_processor() {
    trains_as_on_a_processor("--method plastic --meta-batch 1");
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn a_run_goes_on_as_if_it_had_not_stopped() {
    goes_on_as_if_it_had_not_stopped(&format!("--method protonet {IMAGES}"));
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn sinusoids_go_on_as_if_they_had_not_stopped() {
    goes_on_as_if_it_had_not_stopped(SINUSOIDS);
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn runs_are_tested_as_on_a_processor() {
    let folder = tempfile::tempdir().unwrap();
    let [sines, images] = ["sines", "images"].map(|name| folder.path().join(name));
    train("flex", &sines, SINUSOIDS);
    train("flex", &images, IMAGES);
    let errors = ["flex", "cuda"].map(|backend| {
        let after = test(backend, &sines)["mse_after"].take();
        ["0", "1", "5", "10"].map(|steps| after[steps].as_f64().unwrap())
    });
    are_near(&errors[1], &errors[0]);
    assert_eq!(test("cuda", &images)["accuracy"], test("flex", &images)["accuracy"]);
}

#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn a_hierarchy_learns() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let words = "plasticity run --levels 40,8,4 --periods 1,3 --steps 60 --rule subspace --backend cuda --json --plot";
    let words: Vec<&str> = words.split_whitespace().chain(plot.to_str()).collect();
    let learned = json(&fewshot(&words));
    let explained = |layer: usize| learned["layers"][layer]["explained_variance"].as_f64().unwrap();
    assert_eq!(learned["layers"][1]["firings"], 20);
    assert!(explained(0) > 0.5 && explained(1) > 0.5, "{learned}");
}

/// Bad days of a device, which the card in software has when it is told to.
mod bad_days {
    use std::path::Path;
    use std::process::{Command, Output};

    use fewshot::train::{Checkpoint, RunFolder};

    use super::super::{code, complaint, stderr, untimed};

    const BRIEF: &str = "train --encoder conv4:4 --train-ways 3 --train-queries 1 --ways 3 --queries 1 --steps 3 \
                         --validate-every 2 --validation-episodes 2 --checkpoint-every 1 --eval-episodes 2 \
                         --json --backend cuda";

    /// A run in a folder, where the card is told something and each launch waits for its kernel.
    fn run(folder: &Path, telling: &str, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        let words = BRIEF.split_whitespace().chain(words.split_whitespace());
        command.args(words).arg("--out").arg(folder).env("FEWSHOT_LAUNCH_BLOCKING", "1");
        command.envs(telling.split_once('='));
        command.output().unwrap()
    }

    /// A whole run and what it says, with a line for each launch.
    fn whole(folder: &Path) -> String {
        let output = run(folder, "SOFTWARE_CUDA_TRACE=1", "");
        let text = stderr(&output);
        assert_eq!(code(&output), Some(0), "{text}");
        assert!(text.contains("(software CUDA card)"), "{text}");
        text
    }

    /// Number of launches before the line that begins so.
    fn launches(text: &str, line: &str) -> usize {
        let (before, _) = text.split_once(&format!("\n{line}")).expect(line);
        before.matches(": launch ").count()
    }

    /// Checks that the run ended with one error, whose words are these, that the checkpoint of so many steps is whole, and
    /// that the run goes on from there as if nothing had been.
    fn fails_and_goes_on(folder: &Path, telling: &str, words: &[&str], steps: u64) {
        let broken = folder.join(telling);
        let error = complaint(&run(&broken, telling, ""));
        for word in words {
            assert!(error.contains(word), "{telling}: {word} is not in: {error}");
        }
        let last = Checkpoint::read(&RunFolder::last(&broken)).unwrap();
        assert_eq!(last.progress().step, steps, "{error}");
        let resumed = run(&broken, "", "--resume");
        assert_eq!(code(&resumed), Some(0), "{}", stderr(&resumed));
        assert_eq!(untimed(&broken), untimed(&folder.join("whole")));
    }

    #[test]
    #[ignore = "needs the card in software: kernels/tests/cuda/card/with-card"]
    fn a_kernel_that_faults_is_one_error_with_its_step_and_phase() {
        let folder = tempfile::tempdir().unwrap();
        let text = whole(&folder.path().join("whole"));
        let [first, second, validated] =
            ["step 1/3", "step 2/3", "step 2  validation"].map(|line| launches(&text, line));
        let fails = |number: usize, place: &str, kernel: &str, steps| {
            let telling = format!("SOFTWARE_CUDA_FAULTS_AT={number}");
            fails_and_goes_on(folder.path(), &telling, &[place, "ILLEGAL_ADDRESS", kernel], steps);
        };
        fails(second - 1, "step 1, step: ", ", in the kernel adam", 1);
        // Burn's own kernels are not waited for, and have no names.
        fails((second + validated) / 2, "step 2, validate: ", "", 1);
        // Parameters are checked for the checkpoint, then the next step begins.
        fails((first + second) / 2, "step 1, save: ", "", 0);
    }

    #[test]
    #[ignore = "needs the card in software: kernels/tests/cuda/card/with-card"]
    fn a_card_without_memory_is_one_error_and_the_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        whole(&folder.path().join("whole"));
        let words = ["step 0, ", "out of memory on Cuda(0) (asked for "];
        fails_and_goes_on(folder.path(), "SOFTWARE_CUDA_ALLOCATIONS=50", &words, 0);
    }

    #[test]
    #[ignore = "needs the card in software: kernels/tests/cuda/card/with-card"]
    fn a_device_of_7_5_trains_in_bf16_without_tensor_cores_and_refuses_tf32() {
        let folder = tempfile::tempdir().unwrap();
        let of = |precision: &str| {
            let run_folder = folder.path().join(precision);
            run(&run_folder, "SOFTWARE_CUDA_ARCH=75", &format!("--precision {precision} --steps 1"))
        };
        assert!(complaint(&of("tf32")).contains("does not compute in tf32"));
        let output = of("bf16");
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    }
}
