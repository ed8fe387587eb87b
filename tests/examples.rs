//! The examples as programs.

use std::path::Path;
use std::process::Command;

use super::{code, stderr};

#[test]
fn the_examples_run() {
    let programs = Path::new(env!("CARGO_BIN_EXE_fewshot")).with_file_name("examples");
    for (name, says) in [
        ("01_proto_net", "5-way 1-shot"),
        ("02_own_encoder", "back to training"),
        ("03_maml", "5-way 1-shot"),
        ("04_sinusoids", "after 10 steps"),
        ("05_plasticity", "squared cosine"),
        ("07_pictures", "photo.png: red (0."),
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
