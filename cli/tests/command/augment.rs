//! Augmented training images.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{classical, code, complaint, fewshot, json, small, stderr, untimed};

fn config(run: &Path) -> Value {
    serde_json::from_slice(&fs::read(run.join("config.json")).unwrap()).unwrap()
}

#[test]
fn an_augmented_run_is_written_down_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let options = ["--augment", "pad=3,rotate,erase=0.25", "--test-augment", "3"];
    let result = json(&small(&whole, &options));
    assert_eq!(result["protocol"]["views"], 3);
    let tasks = &config(&whole)["tasks"]["augmentation"];
    assert_eq!(tasks[0]["padded_crop"]["padding"], 3);
    assert_eq!(config(&whole)["user"]["augment"]["augmentation"], *tasks);
    json(&small(&parts, &[&options[..], &["--steps", "6"]].concat()));
    let other = complaint(&small(&parts, &["--resume", "--augment", "pad=2"]));
    assert!(other.contains("augment"), "{other}");
    let resumed = json(&small(&parts, &[&options[..], &["--resume"]].concat()));
    assert_eq!(untimed(&parts).lines().last(), untimed(&whole).lines().last());
    assert_eq!(resumed["accuracy"], result["accuracy"]);
    let run = whole.to_str().unwrap();
    let test = ["eval", run, "--episodes", "20", "--test-augment", "3", "--json"];
    assert_eq!(json(&fewshot(&test))["accuracy"], result["accuracy"]);
}

#[test]
fn a_run_without_augmentation_is_written_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &["--augment", "none"]));
    let config = config(&run);
    assert!(config["user"].get("augment").is_none() && config["tasks"].get("mixing").is_none());
    json(&small(&run, &["--resume", "--steps", "13"]));
    let refused = fewshot(&["eval", run.to_str().unwrap(), "--test-augment", "2"]);
    assert_eq!(code(&refused), Some(2));
    assert!(stderr(&refused).contains("runs that were trained with --augment"));
}

#[test]
fn images_are_mixed_in_classical_training() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let options = ["--method", "simpleshot", "--mixup", "0.2", "--cutmix", "1"];
    json(&classical(&run, &options));
    assert_eq!(config(&run)["user"]["augment"]["mixing"]["cutmix"], 1.0);
}

#[test]
fn a_processor_augments_no_images_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let output = small(&run, &["--augment", "flip", "--data-on", "device"]);
    let told = stderr(&output);
    assert!(told.contains("error: images lie on the device of an accelerator"), "{told}");
    assert_eq!(code(&output), Some(2));
}

#[cfg(feature = "wgpu")]
#[test]
fn images_are_augmented_on_a_device_as_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let [device, host, parts] = ["device", "host", "parts"].map(|name| folder.path().join(name));
    let options = [
        "--backend",
        "wgpu",
        "--shots",
        "1",
        "--augment",
        "standard",
        "--test-augment",
        "2",
        "--validation-episodes",
        "1",
        "--eval-episodes",
        "2",
    ];
    let run = |folder: &Path, more: &[&str]| json(&small(folder, &[&options[..], more].concat()));
    let [on_device, on_host] = [(&device, "device"), (&host, "host")].map(|(folder, data_on)| {
        let report = run(folder, &["--steps", "3", "--data-on", data_on]);
        assert_eq!(report["data_on"], data_on);
        report
    });
    assert_eq!(on_device["protocol"]["views"], 2);
    assert_eq!(on_device["accuracy"], on_host["accuracy"]);
    let first_loss = |folder: &Path| -> f64 {
        let metrics = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        let line: Value = serde_json::from_str(metrics.lines().next().unwrap()).unwrap();
        line["loss"].as_f64().unwrap()
    };
    let (actual, expected) = (first_loss(&device), first_loss(&host));
    assert!((actual - expected).abs() < 1e-4 * expected, "{actual}, not {expected}");
    run(&parts, &["--steps", "2", "--data-on", "device"]);
    run(&parts, &["--steps", "3", "--data-on", "device", "--resume"]);
    assert_eq!(untimed(&parts).lines().last(), untimed(&device).lines().last());
    let folder = device.to_str().unwrap();
    let test = ["eval", folder, "--episodes", "2", "--test-augment", "2", "--json"];
    let test = [&test[..], &["--backend", "wgpu", "--data-on", "device"]].concat();
    let tested = json(&fewshot(&test));
    assert_eq!(
        (&tested["data_on"], &tested["accuracy"]),
        (&"device".into(), &on_device["accuracy"])
    );
}

#[test]
fn wrong_augmentation_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    for (options, expected) in [
        (&["--augment", "standart"][..], "\"standart\" is no augmentation"),
        (&["--augment", "flip=7"], "--augment: flip: a probability is from 0 to 1, not 7"),
        (&["--augment", "grey"], "grey changes colours, and images of 1x28x28 have none"),
        (&["--test-augment", "3"], "--test-augment needs --augment"),
        (&["--test-augment", "3", "--augment", "flip=0"], "--test-augment needs --augment"),
        (&["--mixup", "0.2"], "--mixup is for --train classify"),
        (&["--mixup", "1", "--cutmix", "9999"], "--cutmix: images are mixed by an alpha from"),
        (&["--mixup", "9999", "--cutmix", "1"], "--mixup: images are mixed by an alpha from"),
        (&["--cutmix", "0"], "--cutmix: images are mixed by an alpha from 0.01 to 1000, not 0"),
    ] {
        let output = small(&run, options);
        assert_eq!(code(&output), Some(2), "{options:?}");
        let error = stderr(&output);
        assert!(error.contains("error: ") && error.contains(expected), "{options:?}: {error}");
        assert!(!run.exists(), "{options:?}");
    }
    let data = ["--method", "maml", "--data", "sinusoid", "--steps", "1"];
    for options in [["--augment", "standard"], ["--mixup", "0.2"]] {
        let output = fewshot(&[&["train"], &data[..], &options].concat());
        assert!(stderr(&output).contains("is for images, not for sinusoids"));
        assert_eq!(code(&output), Some(2));
    }
}
