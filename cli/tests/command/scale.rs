//! Options for how training uses the hardware.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{code, fewshot, json, small, stderr, untimed};

/// Two steps on a device, where a processor may do its work, and little else.
#[cfg(feature = "wgpu")]
const ON_WGPU: [&str; 10] = [
    "--backend",
    "wgpu",
    "--shots",
    "1",
    "--steps",
    "2",
    "--validation-episodes",
    "1",
    "--eval-episodes",
    "1",
];

/// Losses of the steps.
fn losses(run: &Path) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line["loss"].as_f64()).collect()
}

#[test]
fn every_precision_and_way_to_checkpoint_trains() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    let report = json(&small(&plain, &[]));
    assert_eq!(report["precision"], "f32");
    assert!(report["loss_scale"].is_null());
    assert_eq!(report["skipped_steps"], 0);
    assert_eq!(report["replicas"], 1);
    assert!(report["peak_memory_mb"].as_f64().unwrap() > 1.0);
    for phase in ["data", "forward", "backward", "step", "validate", "save"] {
        assert!(report["phase_ms"][phase].as_f64().unwrap() > 0.0, "{phase}: {report}");
    }
    assert_eq!(report["phase_ms"]["reduce"], 0.0);
    let expected = losses(&plain);
    let run = |name: &str, options: &[&str], tolerance: f64| {
        let run = folder.path().join(name);
        let report = json(&small(&run, options));
        let found = losses(&run);
        assert_eq!(found.len(), expected.len());
        let error = (found[0] - expected[0]).abs();
        assert!(error <= tolerance * expected[0], "{name}: {} and {}", found[0], expected[0]);
        (report, found)
    };
    let (report, found) = run("bf16", &["--precision", "bf16"], 0.05);
    assert_eq!(report["precision"], "bf16");
    assert!(report["loss_scale"].is_null());
    assert_ne!(found, expected);
    let (report, _) = run("f16", &["--precision", "f16"], 0.05);
    assert_eq!(report["precision"], "f16");
    let scale = report["loss_scale"].as_f64().unwrap();
    let skipped = report["skipped_steps"].as_u64().unwrap();
    assert_eq!(scale, 65536.0 / 2f64.powi(skipped as i32));
    run("balanced", &["--grad-checkpoint", "balanced"], 1e-6);
    run("segments", &["--grad-checkpoint", "segments"], 1e-6);
}

#[test]
fn steps_in_parts_are_those_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, options: &[&str]| {
        let run = folder.path().join(name);
        let report = json(&small(&run, options));
        assert!(options.is_empty() || report["phase_ms"]["reduce"].as_f64().unwrap() > 0.0);
        losses(&run)
    };
    let whole = json(&small(&folder.path().join("whole"), &["--meta-batch", "4"]));
    assert_eq!(whole["phase_ms"]["reduce"], 0.0);
    let whole = losses(&folder.path().join("whole"));
    for (name, options) in [
        ("accumulated", &["--meta-batch", "2", "--accumulate", "2"][..]),
        ("cut", &["--meta-batch", "4", "--micro-batch", "3"]),
    ] {
        // Adam makes much of the last digits later on.
        for (step, (found, whole)) in run(name, options).iter().zip(&whole).take(3).enumerate() {
            let error = (found - whole).abs() / whole;
            assert!(error < 5e-3, "{name}, step {step}: {found} is not {whole}");
        }
    }
}

#[test]
fn a_memory_budget_cuts_a_meta_batch_and_changes_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    json(&small(&whole, &["--meta-batch", "6"]));
    let cut = folder.path().join("cut");
    let options = ["--meta-batch", "6", "--auto-batch", "--memory-budget", "36MB"];
    let output = small(&cut, &options);
    let report = json(&output);
    let told = stderr(&output);
    assert!(told.contains(" of 6 tasks fit ") && !told.contains("6 of 6"), "{told}");
    assert!(report["phase_ms"]["reduce"].as_f64().unwrap() > 0.0);
    for (found, whole) in losses(&cut).iter().zip(losses(&whole)).take(3) {
        assert!((found - whole).abs() < 5e-3 * whole, "{found} is not {whole}");
    }
    let careful = small(&folder.path().join("careful"), &[&options[..], &MARGIN].concat());
    assert!(at_once(&stderr(&careful)) < at_once(&told), "{} {told}", stderr(&careful));
}

const MARGIN: [&str; 2] = ["--auto-batch-margin", "0.3"];

/// How many tasks fit at once, as it was told.
fn at_once(told: &str) -> usize {
    let line = told.lines().find(|line| line.contains(" of 6 tasks fit ")).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

#[cfg(feature = "wgpu")]
#[test]
fn an_accelerator_takes_as_many_tasks_as_fit_unless_it_is_told_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str]| {
        let options = ["--meta-batch", "6"];
        small(&folder.path().join(name), &[&ON_WGPU[..], &options, more].concat())
    };
    let budget = ["--memory-budget", "30MB"];
    json(&run("whole", &[]));
    let cut = run("cut", &budget);
    json(&cut);
    assert!(stderr(&cut).contains("4 of 6 tasks fit in memory at once"), "{}", stderr(&cut));
    let [whole, found] = ["whole", "cut"].map(|name| losses(&folder.path().join(name)));
    assert_eq!(found.len(), 2);
    for (found, whole) in found.iter().zip(whole) {
        assert!((found - whole).abs() < 5e-3 * whole, "{found} is not {whole}");
    }
    let refused = run("told", &[&budget[..], &["--micro-batch", "6"]].concat());
    assert_eq!(code(&refused), Some(1));
    assert!(stderr(&refused).contains("6 tasks do not fit"), "{}", stderr(&refused));
}

#[test]
fn what_segments_save_counts_in_the_check_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--meta-batch", "6", "--memory-budget", "30MB"];
    let refused = small(&folder.path().join("whole"), &options);
    assert_eq!(code(&refused), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("6 tasks do not fit"), "{}", stderr(&refused));
    let segments = ["--grad-checkpoint", "segments"];
    json(&small(&folder.path().join("segments"), &[&options[..], &segments].concat()));
}

#[test]
fn a_profile_tells_every_phase() {
    let folder = tempfile::tempdir().unwrap();
    let told = stderr(&small(&folder.path().join("run"), &["--profile"]));
    for phase in ["data", "forward", "backward", "step", "validate", "save", "other"] {
        assert!(told.lines().any(|line| line.starts_with(phase)), "{phase}: {told}");
    }
}

#[test]
fn nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let refused = |options: &[&str], words: &str| {
        let output = small(&run, options);
        assert_eq!(code(&output), Some(2), "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{options:?}: {}", stderr(&output));
    };
    refused(&["--accumulate", "0"], "0 is not in");
    refused(&["--precision", "f8"], "invalid value 'f8'");
    refused(&["--backend", "flex", "--devices", "0,0"], "names 0 twice");
    refused(&["--backend", "flex", "--devices", "0,1"], "flex:1");
    refused(&["--devices", "0,1"], "--backend auto is none");
    refused(&["--data", "sinusoid", "--method", "maml", "--auto-batch"], "not for sinusoids");
    refused(&["--micro-batch", "2", "--auto-batch"], "cannot be used with");
    refused(&["--auto-batch-margin", "0.2"], "--auto-batch");
    refused(&["--auto-batch", "--auto-batch-margin", "1"], "a share from 0 to below 1");
    let segments = ["--method", "maml", "--grad-checkpoint", "segments"];
    refused(&segments, "--second-order-route chain");
    assert!(!run.exists());
}

#[test]
#[cfg(feature = "ndarray")]
fn a_backend_without_the_type_says_so_before_it_trains() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let output = small(&run, &["--backend", "ndarray", "--precision", "bf16"]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).contains("does not compute in bf16"), "{}", stderr(&output));
    assert!(!run.exists());
}

#[test]
fn another_precision_is_not_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &[]));
    let before = untimed(&run);
    let output = small(&run, &["--resume", "--precision", "bf16"]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).contains("precision"), "{}", stderr(&output));
    assert_eq!(untimed(&run), before);
    let help = fewshot(&["train", "--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("--grad-checkpoint"));
}

/// Several processes that cannot reach each other would all train, into one run folder.
#[test]
fn one_of_several_that_reaches_no_other_does_not_train() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let launchers = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
    for (rank, size) in launchers {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        let output = command.args(super::SMALL).arg(&run).envs([(rank, "1"), (size, "2")]).output();
        let output = output.unwrap();
        assert_eq!(code(&output), Some(1), "{}", stderr(&output));
        let reason = match cfg!(feature = "mpi") {
            true => "started 2 processes, and MPI sees 1",
            false => "built without MPI: build it with --features mpi",
        };
        let told = stderr(&output);
        assert!(told.contains("process 1") && told.contains(reason), "{told}");
        assert!(!run.exists());
    }
}

/// Programs that MPI starts together.
#[cfg(feature = "mpi")]
mod processes {
    use std::process::Output;

    use super::*;

    /// Ends by itself where processes wait for each other for ever.
    fn starter() -> Command {
        let mut command = Command::new("mpirun");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "--timeout", "180"]);
        command
    }

    fn mpirun(processes: usize, run: &Path, options: &[&str]) -> Output {
        let mut command = starter();
        command.args(["-n", &processes.to_string(), env!("CARGO_BIN_EXE_fewshot")]);
        command.args(super::super::SMALL).arg(run).args(["--threads", "1"]).args(options);
        command.output().expect("mpirun, of Debian's openmpi-bin, is there")
    }

    /// A process for each of `own`, with options of its own.
    fn mpirun_each(run: &Path, options: &[&str], own: [[&str; 2]; 2]) -> Output {
        let mut command = starter();
        for (index, own) in own.into_iter().enumerate() {
            if index > 0 {
                command.arg(":");
            }
            command.args(["-n", "1", env!("CARGO_BIN_EXE_fewshot")]);
            command.args(super::super::SMALL).arg(run).args(["--threads", "1"]);
            command.args(options).args(own);
        }
        command.output().expect("mpirun, of Debian's openmpi-bin, is there")
    }

    #[test]
    fn several_processes_make_the_steps_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--meta-batch", "3", "--micro-batch", "1"];
        let alone = folder.path().join("alone");
        let expected = json(&small(&alone, &options));
        for processes in [2, 3] {
            let run = folder.path().join(processes.to_string());
            let report = json(&mpirun(processes, &run, &options));
            assert_eq!(report["replicas"], processes);
            assert_eq!(untimed(&run), untimed(&alone), "{processes} processes");
            assert_eq!(report["accuracy"], expected["accuracy"]);
            assert_eq!(report["ci95"], expected["ci95"]);
        }
    }

    #[test]
    fn sums_by_mpi_itself_are_the_same_within_rounding() {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--meta-batch", "3", "--micro-batch", "1"];
        let exact = folder.path().join("exact");
        json(&mpirun(2, &exact, &options));
        let fast = folder.path().join("fast");
        json(&mpirun(2, &fast, &[&options[..], &["--reduction", "fast"]].concat()));
        for (fast, exact) in losses(&fast).iter().zip(losses(&exact)).take(3) {
            assert!((fast - exact).abs() < 5e-3 * exact, "{fast} is not {exact}");
        }
    }

    #[test]
    fn a_run_goes_on_with_another_number_of_processes() {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--meta-batch", "3", "--micro-batch", "1"];
        let whole = folder.path().join("whole");
        json(&small(&whole, &options));
        let parts = folder.path().join("parts");
        let shorter = [&options[..], &["--steps", "6"]].concat();
        json(&mpirun(2, &parts, &shorter));
        let resumed = [&options[..], &["--resume"]].concat();
        json(&mpirun(3, &parts, &resumed));
        assert_eq!(untimed(&parts), untimed(&whole));
    }

    #[test]
    fn more_processes_than_tasks_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let output = mpirun(3, &run, &["--meta-batch", "2"]);
        assert!(!output.status.success());
        let told = stderr(&output);
        assert!(told.contains("3 devices cannot share 2 tasks"), "{told}");
        assert!(!run.join("last.ckpt").exists());
    }

    #[test]
    fn a_diverging_inner_loop_ends_all_with_one_error() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let inner = ["--method", "fomaml", "--inner-lr", "1e30"];
        let tasks = ["--meta-batch", "2", "--micro-batch", "1"];
        let output = mpirun(2, &run, &[&inner[..], &tasks].concat());
        assert!(!output.status.success());
        let told = stderr(&output);
        let errors: Vec<_> = told.lines().filter(|line| line.starts_with("error")).collect();
        assert_eq!(errors.len(), 1, "{told}");
        assert!(errors[0].contains("task 0 diverged in its inner step 1"), "{told}");
    }

    #[test]
    fn processes_with_different_settings_end_with_the_first_difference() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let seeds = [["--seed", "1"], ["--seed", "2"]];
        let output = mpirun_each(&run, &["--meta-batch", "2"], seeds);
        assert!(!output.status.success());
        let told = stderr(&output);
        assert!(told.contains("seed") && told.contains("process 1"), "{told}");
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn processes_on_accelerators_take_as_many_tasks_as_fit_each_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let options = [&ON_WGPU[..], &["--meta-batch", "12"]].concat();
        let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
        json(&mpirun(2, &whole, &options));
        let budgets = [["--memory-budget", "8GiB"], ["--memory-budget", "30MB"]];
        let output = mpirun_each(&cut, &options, budgets);
        json(&output);
        // The first process speaks, to which all would fit.
        let told = stderr(&output);
        assert!(told.contains("4 of 6 tasks fit in memory at once"), "{told}");
        let [whole, found] = [whole, cut].map(|run| losses(&run));
        assert_eq!(found.len(), 2);
        for (found, whole) in found.iter().zip(whole) {
            assert!((found - whole).abs() < 5e-3 * whole, "{found} is not {whole}");
        }
    }

    #[test]
    fn a_process_that_dies_ends_the_run_and_leaves_a_checkpoint_to_go_on_from() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let options = ["--meta-batch", "2", "--micro-batch", "1"];
        let whole = folder.path().join("whole");
        json(&small(&whole, &options));
        let mut command = starter();
        // The second process kills itself as soon as there is a checkpoint of some steps.
        let script = "\
            if [ $OMPI_COMM_WORLD_RANK = 1 ]; then \
                (until [ -s $RUN/metrics.jsonl ]; do sleep 0.02; done; kill -9 $$) & \
            fi; \
            exec \"$@\"";
        command.env("RUN", &run).args(["-n", "2", "sh", "-c", script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_fewshot")).args(super::super::SMALL).arg(&run);
        let output = command.args(["--threads", "1"]).args(options).output().unwrap();
        assert!(!output.status.success());
        assert!(stderr(&output).contains("signal 9"), "{}", stderr(&output));
        let resumed = [&options[..], &["--resume"]].concat();
        json(&mpirun(2, &run, &resumed));
        assert_eq!(untimed(&run), untimed(&whole));
    }
}
