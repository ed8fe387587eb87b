//! The command as a program.
#![cfg(feature = "flex")]

mod adapt_run;
mod augment;
mod backbones;
mod bench;
#[cfg(feature = "cuda")]
mod cuda;
mod embeddings;
mod encoders;
mod episodes;
mod export;
mod formats;
mod heads;
mod inner_loop;
mod outer_step;
mod pack;
#[cfg(feature = "serve")]
mod page;
mod pictures;
mod plasticity;
mod reading;
mod reproduce;
mod resuming;
mod run_classes;
mod runs;
mod scale;
#[cfg(feature = "serve")]
mod serve;
mod training;
mod weights;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
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

/// The same as classical training.
fn classical(folder: &Path, more: &[&str]) -> Output {
    let batch = ["train", "--batch-size", "15"];
    fewshot(&[&batch, &SMALL[5..], &[folder.to_str().unwrap()], more].concat())
}

/// The metrics of a run without how long its steps took.
fn untimed(run: &Path) -> String {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| line.split(",\"phase_ms\"").next().unwrap().to_owned() + "\n").collect()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Standard error without the notice that this machine has no CUDA device.
fn stderr(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.split_inclusive('\n').filter(|line| !line.starts_with("skipped cuda: ")).collect()
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
        "--batch-size",
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
        &["train", "--method", "maml", "--damped"],
        &["train", "--method", "maml", "--batch-norm", "running"],
        &["train", "--method", "fomaml", "--order", "second"],
        &["train", "--method", "imaml", "--proximal", "-1"],
        &["train", "--method", "imaml", "--order", "first"],
        &["train", "--inner-lr", "0.1"],
        &["train", "--method", "imaml", "--second-order-route", "unrolled"],
        &["train", "--method", "fomaml", "--second-order-route", "chain"],
        &["train", "--method", "anil", "--second-order-route", "chain"],
        &["train", "--lanes", "2"],
        &["train", "--batch-norm", "support"],
        &["train", "--method", "maml", "--inner-batch", "2"],
        &["train", "--method", "maml", "--multi-step-loss", "2"],
        &["train", "--method", "maml++", "--order", "first", "--first-order-steps", "2"],
        &["train", "--method", "reptile", "--order", "first"],
        &["train", "--method", "reptile", "--halve-every", "2"],
        &["train", "--method", "reptile", "--lr", "2"],
        &["train", "--protocol", "varied", "--ways", "5"],
        &["train", "--protocol", "varied", "--method", "maml"],
        &["train", "--protocol", "various"],
        &["train", "--eval-episodes", "some"],
        &["train", "--data", "sinusoid", "--method", "maml", "--protocol", "varied"],
        &["train", "--data", "sinusoid", "--method", "maml", "--episodes", "list.csv"],
        &["data", "episodes", "sinusoid", "--to", "list.csv"],
        &["data", "episodes", "glyphs", "--to", "list.csv", "--protocol", "varied", "--shots", "1"],
        &["data", "episodes", "glyphs", "--to", "list.csv", "--max-pixels", "9"],
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
fn the_built_in_data_is_described() {
    let text = String::from_utf8(fewshot(&["data", "info", "glyphs"]).stdout).unwrap();
    assert!(text.contains("1x28x28") && text.contains("600 classes of 20 images"), "{text}");
}
