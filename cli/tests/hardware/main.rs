//! `fewshot hardware` and the choice of devices, as a user meets them.

mod devices;
mod models;

use std::process::{Command, Output};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    // Calibrations go nowhere near the user's.
    command.args(args).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn fewshot(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(output));
    text
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&fewshot(args))).unwrap()
}

/// The exit code and the one line that says why.
fn refused(args: &[&str]) -> (i32, String) {
    let output = fewshot(args);
    let text = stderr(&output);
    let errors = text.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{args:?}: {text}");
    (output.status.code().unwrap(), text)
}

fn fixture(machine: &str) -> String {
    format!("{}/../tests/fixtures/inventories/{machine}.json", env!("CARGO_MANIFEST_DIR"))
}
