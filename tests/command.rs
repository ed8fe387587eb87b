//! The command as a program.
#![cfg(all(feature = "cli", feature = "flex"))]

#[path = "command/adapt_run.rs"]
mod adapt_run;
#[path = "command/backbones.rs"]
mod backbones;
#[path = "command/formats.rs"]
mod formats;
#[path = "command/heads.rs"]
mod heads;
#[path = "command/pictures.rs"]
mod pictures;
#[path = "command/plasticity.rs"]
mod plasticity;
#[path = "command/reproduce.rs"]
mod reproduce;
#[path = "command/scale.rs"]
mod scale;
#[cfg(feature = "serve")]
#[path = "command/serve.rs"]
mod serve;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A training run of about a second.
const SMALL: [&str; 19] = [
    "train",
    "--train-ways",
    "5",
    "--train-queries",
    "2",
    "--steps",
    "12",
    "--validate-every",
    "6",
    "--validation-episodes",
    "5",
    "--checkpoint-every",
    "2",
    "--eval-episodes",
    "20",
    "--queries",
    "5",
    "--json",
    "--out",
];

/// The tested backends, and whether they are compiled.
const BACKENDS: [(&str, bool); 4] = [
    ("flex", true),
    ("ndarray", cfg!(feature = "ndarray")),
    ("candle", cfg!(feature = "candle")),
    ("wgpu", cfg!(feature = "wgpu")),
];

fn fewshot(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fewshot")).args(args).output().unwrap()
}

fn small(folder: &Path, more: &[&str]) -> Output {
    fewshot(&[&SMALL[..], &[folder.to_str().unwrap()], more].concat())
}

/// The metrics of a run without how long its steps took.
fn untimed(run: &Path) -> String {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| line.split(",\"phase_ms\"").next().unwrap().to_owned() + "\n").collect()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(code(output), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("standard output is one JSON object")
}

/// The one line that a failure ends with.
fn complaint(output: &Output) -> String {
    assert_eq!(code(output), Some(1), "{}", stderr(output));
    let text = stderr(output);
    let line = text.lines().last().unwrap_or_default();
    assert!(line.starts_with("error: "), "{text}");
    line.to_owned()
}

/// `classes` folders of `images` grey images each, no two alike.
fn image_folder(classes: usize, images: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for class in 0..classes {
        let path = folder.path().join(format!("class{class}"));
        fs::create_dir(&path).unwrap();
        for index in 0..images {
            let shade = |x, y| image::Luma([(x * 7 + y * (class as u32 + 3) + index * 31) as u8]);
            let image = image::GrayImage::from_fn(20, 24, shade);
            image.save(path.join(format!("{index}.png"))).unwrap();
        }
    }
    folder
}

#[test]
fn without_a_word_it_helps() {
    let output = fewshot(&[]);
    assert_eq!(code(&output), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("train") && text.contains("eval") && text.contains("data"), "{text}");
}

#[test]
fn the_help_of_training_documents_the_contract() {
    let text = String::from_utf8(fewshot(&["train", "--help"]).stdout).unwrap();
    let options = [
        "--method",
        "--data",
        "--split",
        "--backend",
        "--device",
        "--ways",
        "--shots",
        "--queries",
        "--train-ways",
        "--train-shots",
        "--train-queries",
        "--steps",
        "--meta-batch",
        "--lr",
        "--seed",
        "--eval-episodes",
        "--threads",
        "--out",
        "--resume",
        "--json",
        "Exit code",
        "train_episodes_per_s",
    ];
    for option in options {
        assert!(text.contains(option), "{option} is not in the help");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [
        &["fly"][..],
        &["train", "--backend", "abacus"],
        &["train", "--ways", "many"],
        &["train", "--ways", "0"],
        &["train", "--shots", "0"],
        &["train", "--queries", "0"],
        &["train", "--steps", "0"],
        &["train", "--lr", "-1"],
        &["train", "--lr", "nan"],
        &["train", "--threads", "0"],
        &["train", "--threads", "18446744073709551615"],
        &["train", "--meta-batch", "18446744073709551615"],
        &["train", "--data", "folder:x", "--image-size", "4294967296"],
        &["train", "--patience", "0"],
        &["train", "--split", "finn"],
        &["train", "--grey"],
        &["train", "--clip-norm", "-1"],
        &["train", "--device", "7"],
        &["train", "--data", "cifar:x"],
        &["train", "--split", "random"],
        &["train", "--resume"],
        &["train", "--method", "mamel"],
        &["train", "--method", "maml", "--inner-steps", "0"],
        &["train", "--method", "maml", "--inner-lr", "nan"],
        &["train", "--method", "maml", "--train-ways", "20"],
        &["train", "--method", "maml", "--metric", "cosine"],
        &["train", "--method", "maml", "--proximal", "2"],
        &["train", "--method", "maml", "--batch-norm", "running"],
        &["train", "--method", "fomaml", "--order", "second"],
        &["train", "--method", "imaml", "--proximal", "-1"],
        &["train", "--method", "imaml", "--order", "first"],
        &["train", "--inner-lr", "0.1"],
        &["train", "--method", "imaml", "--second-order-route", "unrolled"],
        &["train", "--method", "fomaml", "--second-order-route", "chain"],
        &["train", "--lanes", "2"],
        &["train", "--batch-norm", "support"],
        &["train", "--method", "maml", "--inner-batch", "2"],
        &["train", "--method", "maml", "--multi-step-loss", "2"],
        &["train", "--method", "maml++", "--order", "first", "--first-order-steps", "2"],
        &["train", "--method", "reptile", "--order", "first"],
        &["train", "--data", "sinusoid"],
        &["train", "--data", "sinusoid", "--method", "maml", "--ways", "5"],
        &["train", "--data", "sinusoid", "--method", "maml", "--bn", "batch"],
        &["train", "--data", "sinusoid", "--method", "maml", "--split", "vinyals"],
        &["train", "--data", "sinusoid", "--method", "proto-maml"],
        &["train", "--data", "sinusoid", "--method", "plastic"],
        &["train", "--method", "plastic", "--metric", "cosine"],
        &["train", "--method", "plastic", "--inner-lr", "0.1"],
        &["train", "--method", "plastic", "--train-ways", "20"],
        &["plasticity", "run", "--levels", "100"],
        &["plasticity", "run", "--periods", "1,2,3"],
        &["plasticity", "run", "--rate", "nan"],
        &["plasticity", "run", "--steps", "0"],
        &["plasticity", "run", "--rule", "freud"],
        &["plasticity", "run", "--whole"],
        &["plasticity", "run", "--rule", "oja", "--decay", "0.1"],
        &["plasticity", "run", "--rule", "hebb", "--decay", "-1"],
        &["plasticity", "run", "--rule", "hebb", "--tau", "9"],
        &["plasticity", "run", "--rule", "bcm", "--tau", "0"],
        &["plasticity", "run", "--levels", "1,4", "--periods", "1"],
        &["plasticity", "run", "--aggregate", "concat", "--top-down", "1"],
        &["plasticity", "run", "--plot", "no/such/folder/plot.svg"],
        &["train", "--data", "sinusoid", "--method", "maml", "--shots", "0"],
        &["train", "--data", "sinusoid", "--method", "maml", "--shots", "18446744073709551615"],
        &["eval"],
        &["eval", "x", "--episodes", "0"],
        &["data", "omniglot"],
        &["bench"],
        &["bench", "wings"],
        &["bench", "kernels", "--only", "fly"],
        &["bench", "kernels", "--only", "conv_stack,fly"],
        &["bench", "kernels", "--backend", "abacus"],
        &["bench", "kernels", "--threads", "0"],
        &["bench", "kernels", "--device", "7"],
    ] {
        let output = fewshot(args);
        assert_eq!(code(&output), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_run_reports_one_json_object_and_its_test_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let report = json(&small(&run, &["--threads", "1"]));
    let accuracy = report["accuracy"].as_f64().unwrap();
    assert!((20.0..=100.0).contains(&accuracy), "{report}");
    for key in ["ci95", "train_episodes_per_s", "eval_episodes_per_s"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}: {report}");
    }
    assert_eq!(report["steps"], 12);
    assert_eq!(report["backend"], "flex");
    assert_eq!(report["seed"], 1);
    assert_eq!(report["protocol"]["ways"], 5);
    assert_eq!(report["protocol"]["batch_norm"], "running");
    assert_eq!(report["protocol"]["train"]["queries"], 2);
    assert_eq!(report["run"], run.to_str().unwrap());
    for file in ["config.json", "metrics.jsonl", "curves.svg", "last.ckpt", "best.ckpt"] {
        assert!(run.join(file).exists(), "{file}");
    }
    let again = json(&fewshot(&["eval", run.to_str().unwrap(), "--episodes", "20", "--json"]));
    assert_eq!(again["accuracy"], report["accuracy"]);
    assert_eq!(again["ci95"], report["ci95"]);
    let other = ["eval", run.to_str().unwrap(), "--episodes", "20", "--seed", "9", "--json"];
    assert_ne!(json(&fewshot(&other))["ci95"], report["ci95"]);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = |name: &str, more: &[&str]| {
        let run = folder.path().join(name);
        json(&small(&run, more));
        untimed(&run)
    };
    let first = metrics("a", &["--threads", "1"]);
    assert_eq!(first, metrics("b", &["--threads", "3"]));
    assert_ne!(first, metrics("c", &["--seed", "2"]));
}

#[test]
#[cfg(unix)]
fn a_killed_run_resumes_as_if_it_had_never_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let expected = json(&small(&whole, &[]));
    let killed = folder.path().join("killed");
    let mut child = start(&killed);
    wait_for_metrics(&killed);
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = json(&small(&killed, &["--resume"]));
    for key in ["accuracy", "ci95", "steps"] {
        assert_eq!(resumed[key], expected[key], "{key}");
    }
    assert_eq!(untimed(&killed), untimed(&whole));
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_is_saved_and_exits_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut child = start(&run);
    wait_for_metrics(&run);
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(json(&small(&run, &["--resume"]))["steps"], 12);
}

#[cfg(unix)]
fn start(run: &Path) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(SMALL).arg(run).stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null()).spawn().unwrap()
}

/// Until the run has flushed some steps, that is, made a checkpoint after its first.
#[cfg(unix)]
fn wait_for_metrics(run: &Path) {
    let written = || fs::metadata(run.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0);
    for _ in 0..6000 {
        if written() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no step was made within a minute");
}

#[test]
#[cfg(unix)]
fn a_full_disk_is_reported_and_the_old_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &["--steps", "2"]));
    let before = fs::read(run.join("last.ckpt")).unwrap();
    let args = [&SMALL[..], &[run.to_str().unwrap(), "--resume"]].concat();
    // Files beyond 64 KiB fail to be written, as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_fewshot")]).args(args);
    let output = command.output().unwrap();
    assert!(complaint(&output).contains("last.ckpt"), "{}", stderr(&output));
    assert_eq!(fs::read(run.join("last.ckpt")).unwrap(), before);
    assert!(!run.join("last.ckpt.partial").exists());
    assert_eq!(json(&small(&run, &["--resume"]))["steps"], 12);
}

#[test]
fn a_run_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &[]));
    assert!(complaint(&small(&run, &[])).contains("already holds a run"));
    let other = complaint(&small(&run, &["--resume", "--lr", "0.5"]));
    assert!(other.contains("user.learning_rate 0.001"), "{other}");
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("config.json"), "mine").unwrap();
    assert!(complaint(&small(&foreign, &[])).contains("files of its names"));
    assert_eq!(fs::read_to_string(foreign.join("config.json")).unwrap(), "mine");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(complaint(&small(&file.join("run"), &[])).contains("file"));
    let empty = folder.path().join("empty");
    assert!(complaint(&small(&empty, &["--resume"])).contains("no checkpoint to resume"));
}

#[test]
fn a_checkpoint_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &[]));
    let eval = |path: &Path, more: &[&str]| {
        complaint(&fewshot(&[&["eval", path.to_str().unwrap()], more].concat()))
    };
    assert!(eval(&folder.path().join("nowhere"), &[]).contains("nowhere"));
    let text = folder.path().join("text.ckpt");
    fs::write(&text, "not a checkpoint").unwrap();
    assert!(eval(&text, &[]).contains("not a checkpoint"));
    let damaged = folder.path().join("damaged.ckpt");
    let mut bytes = fs::read(run.join("best.ckpt")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 255;
    fs::write(&damaged, bytes).unwrap();
    assert!(eval(&damaged, &[]).contains("damaged"));
    let images = image_folder(5, 20);
    let data = format!("folder:{}", images.path().display());
    let other = eval(&run, &["--data", &data]);
    assert!(other.contains("1x28x28") && other.contains("3x84x84"), "{other}");
}

#[test]
fn a_folder_of_images_trains_a_learner() {
    let folder = tempfile::tempdir().unwrap();
    let images = image_folder(12, 8);
    let data = format!("folder:{}", images.path().display());
    let size = ["--data", &data, "--image-size", "16", "--ways", "2", "--queries", "3"];
    let report = json(&small(&folder.path().join("run"), &[&size[..], &["--steps", "2"]].concat()));
    assert_eq!(report["protocol"]["data"], "folder");
    let info = fewshot(&["data", "info", &data]);
    let text = String::from_utf8(info.stdout).unwrap();
    assert!(text.contains("3x84x84") && text.contains("of 8 images"), "{text}");
    let tiny = [&size[..2], &["--image-size", "8"], &size[4..]].concat();
    let small_images = complaint(&small(&folder.path().join("b"), &tiny));
    assert!(small_images.contains("3x8x8"), "{small_images}");
}

#[test]
fn data_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let train = |data: &str, more: &[&str]| {
        let size = if data.starts_with("folder:") {
            &["--image-size", "16", "--ways", "2"][..]
        } else {
            &[]
        };
        complaint(&small(&run, &[&["--data", data], size, more].concat()))
    };
    let path = |name: &str| folder.path().join(name).display().to_string();
    assert!(train(&format!("folder:{}", path("nowhere")), &[]).contains("nowhere"));
    let omniglot = train(&format!("omniglot:{}", path("nowhere")), &[]);
    assert!(omniglot.contains("images_background.zip"), "{omniglot}");
    assert!(omniglot.contains("brendenlake/omniglot"), "{omniglot}");
    fs::create_dir(folder.path().join("zips")).unwrap();
    for half in ["background", "evaluation"] {
        fs::write(folder.path().join(format!("zips/images_{half}.zip")), "PK?").unwrap();
    }
    assert!(train(&format!("omniglot:{}", path("zips")), &[]).contains("not a whole zip"));
    let few = image_folder(12, 3);
    let few = format!("folder:{}", few.path().display());
    assert!(train(&few, &[]).contains("examples a class"), "too few images");
    assert!(train(&few, &["--train-ways", "50"]).contains("50 classes"), "too many ways");
    let broken = image_folder(12, 8);
    fs::write(broken.path().join("class3/0.png"), "no image").unwrap();
    let text = train(&format!("folder:{}", broken.path().display()), &[]);
    assert!(text.contains(&PathBuf::from("class3").join("0.png").display().to_string()), "{text}");
    assert!(!run.exists(), "nothing was begun");
    let data = format!("folder:{}", broken.path().display());
    let skipping =
        ["--data", &data, "--image-size", "16", "--grey", "--skip-broken", "--ways", "2"];
    let output = small(&run, &[&skipping[..], &["--queries", "3", "--steps", "2"]].concat());
    assert!(stderr(&output).contains("broken images left out: 1"), "{}", stderr(&output));
    assert_eq!(json(&output)["steps"], 2);
}

#[test]
fn a_diverging_run_stops_and_keeps_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let text = complaint(&small(&run, &["--lr", "1e38"]));
    assert!(text.contains("step") && text.contains("last good"), "{text}");
    assert!(run.join("last.ckpt").exists());
}

#[test]
fn a_download_with_another_checksum_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong").unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(["data", "omniglot", "--to"]).arg(folder.path());
    let output = command.env("FEWSHOT_OMNIGLOT_MIRROR", mirror).output().unwrap();
    assert!(complaint(&output).contains("checksum"), "{}", stderr(&output));
    assert!(server.join().unwrap().starts_with("GET /images_background.zip "));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
#[cfg(unix)]
fn a_run_outlives_whoever_listened_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let piped = "\"$0\" \"$@\" 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}";
    let mut command = Command::new("bash");
    command.args(["-c", piped, env!("CARGO_BIN_EXE_fewshot")]).args(SMALL).arg(&run);
    assert_eq!(command.status().unwrap().code(), Some(0));
    let metrics = untimed(&run);
    assert!(metrics.lines().last().unwrap().starts_with("{\"step\":12,"), "{metrics}");
    // Of the best step, which is one of the two that were validated.
    let again = fewshot(&["eval", run.to_str().unwrap(), "--episodes", "2", "--json"]);
    assert!([6, 12].iter().any(|step| json(&again)["steps"] == *step));
}

#[test]
#[cfg(target_os = "linux")]
fn a_result_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    let output = command.args(["data", "info", "glyphs"]).stdout(full).output().unwrap();
    assert!(complaint(&output).contains("cannot write the result"));
}

#[test]
fn the_built_in_data_is_described() {
    let text = String::from_utf8(fewshot(&["data", "info", "glyphs"]).stdout).unwrap();
    assert!(text.contains("1x28x28") && text.contains("600 classes of 20 images"), "{text}");
}

#[test]
fn every_compiled_backend_trains() {
    let folder = tempfile::tempdir().unwrap();
    for (backend, compiled) in BACKENDS {
        let run = folder.path().join(backend);
        let tiny = ["--backend", backend, "--steps", "2", "--eval-episodes", "2"];
        let tiny = [&tiny[..], &["--validation-episodes", "1", "--validate-every", "2"]].concat();
        let output = small(&run, &tiny);
        if !compiled {
            assert_eq!(code(&output), Some(2));
            assert!(stderr(&output).contains("not compiled"), "{}", stderr(&output));
            continue;
        }
        assert_eq!(json(&output)["backend"], backend);
        assert_eq!(
            json(&fewshot(&["eval", run.to_str().unwrap(), "--episodes", "2", "--json"]))["steps"],
            2
        );
    }
}

/// Two tasks a step.
fn adaptive(folder: &Path, method: &str, more: &[&str]) -> Output {
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
fn an_inner_loop_that_diverges_is_told_with_its_task() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let output = adaptive(&run, "maml", &["--inner-lr", "1e30"]);
    let complaint = complaint(&output);
    assert!(complaint.contains("task 0 diverged in its inner step 1"), "{complaint}");
}

/// What a bench measured, in JSON and as a table.
fn bench(more: &[&str], kernels: &str) -> (Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(["bench", "kernels", "--quick", "--json"]).args(more);
    let output = command.env("FEWSHOT_KERNELS", kernels).output().unwrap();
    (json(&output), stderr(&output))
}

/// A number above zero, `path` being a JSON pointer.
fn positive(value: &Value, path: &str) -> f64 {
    let number = value.pointer(path).and_then(Value::as_f64);
    let number = number.unwrap_or_else(|| panic!("no number at {path}: {value}"));
    assert!(number.is_finite() && number > 0.0, "{path} is {number}: {value}");
    number
}

#[test]
fn every_operation_is_measured_beside_its_reference_and_the_limits() {
    let (report, table) = bench(&["--threads", "1"], "");
    for name in ["/machine/cores", "/machine/threads"] {
        positive(&report, name);
    }
    assert_eq!(report["machine"]["threads"], 1);
    assert_eq!(report["backend"], "flex");
    assert!(report["machine"]["route"].as_str().unwrap().starts_with("fused"), "{report}");
    for (limit, rate) in [("matmul", "/gflop_per_s"), ("copy", "/gb_per_s")] {
        let rates = report["limits"][limit].as_array().unwrap();
        assert_eq!(rates.len(), 2, "{report}");
        for found in rates {
            positive(found, rate);
            positive(found, "/ms/median");
        }
    }
    let rows = report["rows"].as_array().unwrap();
    for operation in
        ["conv_stack", "conv2d", "batch_norm", "optim_step", "grad_stats", "training_step"]
    {
        assert!(rows.iter().any(|row| row["operation"] == operation), "{operation}: {report}");
        assert!(table.contains(operation), "{table}");
    }
    for row in rows {
        let rate = if row["limit"] == "matmul" { "/gflop_per_s" } else { "/gb_per_s" };
        for number in [rate, "/of_limit", "/speedup"] {
            positive(row, number);
        }
        for times in ["/ms", "/reference_ms"] {
            let steps = ["min", "lower_quartile", "median", "upper_quartile"];
            let times_of = steps.map(|step| positive(row, &format!("{times}/{step}")));
            assert!(times_of.is_sorted(), "{row}");
            assert!(positive(row, &format!("{times}/runs")) >= 2.0);
        }
    }
}

#[test]
fn what_is_measured_can_be_chosen() {
    let (report, _) = bench(&["--only", "training_step", "--no-reference"], "");
    let rows = report["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["operation"], "training_step");
        assert!(row["reference_ms"].is_null() && row["speedup"].is_null(), "{row}");
        positive(row, "/ms/median");
    }
}

#[test]
fn the_kernels_that_the_environment_names_are_those_measured() {
    let (portable, _) = bench(&["--only", "conv_stack"], "portable");
    assert_eq!(portable["machine"]["route"], "fused (portable)");
    let (reference, _) = bench(&["--only", "conv_stack"], "reference");
    let route = reference["machine"]["route"].as_str().unwrap();
    assert!(route.starts_with("reference"), "{route}");
    assert!(reference["rows"][0]["reference_ms"].is_null(), "it would be the same twice");
}

#[test]
fn kernels_that_are_not_there_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let train = [&SMALL[..], &[run.to_str().unwrap()]].concat();
    for args in [&["bench", "kernels", "--quick"][..], &train, &["eval", "nowhere"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        let output = command.args(args).env("FEWSHOT_KERNELS", "mmx").output().unwrap();
        let text = stderr(&output);
        assert_eq!(code(&output), Some(2), "{text}");
        assert!(text.starts_with("error: FEWSHOT_KERNELS is mmx") && text.contains("portable"));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(output.stdout.is_empty() && !run.exists());
    }
}

#[test]
fn the_examples_run() {
    let programs = Path::new(env!("CARGO_BIN_EXE_fewshot")).with_file_name("examples");
    for (name, says) in [
        ("01_proto_net", "5-way 1-shot"),
        ("02_own_encoder", "back to training"),
        ("03_maml", "5-way 1-shot"),
        ("04_sinusoids", "after 10 steps"),
        ("05_plasticity", "squared cosine"),
        ("07_pictures", "are needed"),
        ("08_features", "bd-cspn"),
        #[cfg(feature = "serve")]
        ("09_serve_in_your_own_axum", r#""class":"red""#),
    ] {
        let output = Command::new(programs.join(name)).output();
        let output = output.expect("examples are built by a plain `cargo test`");
        assert_eq!(code(&output), Some(0), "{name}: {}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(says), "{name}: {text}");
    }
}

#[cfg(feature = "train-tui")]
#[test]
fn the_example_of_a_dashboard_runs_without_a_terminal() {
    let programs = Path::new(env!("CARGO_BIN_EXE_fewshot")).with_file_name("examples");
    let folder = tempfile::tempdir().unwrap();
    let mut example = Command::new(programs.join("06_dashboard"));
    let output = example.arg(folder.path()).arg("2").output();
    let output = output.expect("examples are built by a plain `cargo test`");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("5-way 1-shot") && text.contains("Accuracy of tasks"), "{text}");
    for file in ["model-2.mpk", "optim-2.mpk", "scheduler-2.mpk"] {
        assert!(folder.path().join("checkpoint").join(file).exists(), "{file}");
    }
}

#[test]
fn plastic_connections_are_trained_and_tested() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let run = run.to_str().unwrap();
    let train = ["train", "--method", "plastic", "--steps", "3", "--meta-batch", "1", "--json"];
    let brief = ["--validation-episodes", "2", "--eval-episodes", "4", "--out", run];
    let report = json(&fewshot(&[&train[..], &brief].concat()));
    assert_eq!(report["protocol"]["method"], "plastic");
    assert_eq!(report["protocol"]["train"]["ways"], 5);
    let again = json(&fewshot(&["eval", run, "--episodes", "4", "--json"]));
    assert_eq!(again["accuracy"], report["accuracy"]);
    let wide = fewshot(&["eval", run, "--ways", "7"]);
    assert!(complaint(&wide).contains("5"), "{}", stderr(&wide));
}
