//! The examples as programs.
#![cfg(feature = "flex")]

use std::process::Command;

/// The output of an example, which cargo builds with the tests.
fn run(name: &str, args: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    let output = Command::new(program).args(args).output();
    let output = output.expect("examples are built by a plain `cargo test`");
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}{errors}");
    text
}

#[test]
fn the_examples_run() {
    for (name, says) in [
        ("01_proto_net", "5-way 1-shot"),
        ("02_own_encoder", "back to training"),
        ("03_maml", "5-way 1-shot"),
        ("04_sinusoids", "after 10 steps"),
        ("05_plasticity", "squared cosine"),
        ("07_pictures", "photo.png: red (0."),
        ("08_features", "bd-cspn"),
        ("09_serve_in_your_own_axum", r#""class":"red""#),
    ] {
        let text = run(name, &[]);
        assert!(text.contains(says), "{name}: {text}");
    }
}

#[cfg(feature = "train-tui")]
#[test]
fn the_example_of_a_dashboard_runs_without_a_terminal() {
    let text = run("06_dashboard", &["2"]);
    assert!(text.contains("5-way 1-shot"), "{text}");
}
