//! `fewshot train --encoder`: any network, for every learner.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::pictures::{draw, text, weights};
use super::{SMALL, code, fewshot, image_folder, json, stderr};

/// A run of so few steps that a large network takes little longer than a small one.
fn run(folder: &Path, data: &str, more: &[&str]) -> std::process::Output {
    let sizes = ["--train-ways", "2", "--train-queries", "1"];
    brief(folder, data, &[&sizes[..], more].concat())
}

fn brief(folder: &Path, data: &str, more: &[&str]) -> std::process::Output {
    let words = ["--data", data, "--ways", "2", "--queries", "1", "--validate-every", "100"];
    let pace = ["--steps", "2", "--eval-episodes", "2", "--validation-episodes", "1"];
    fewshot(&[&["train", "--json", "--out", text(folder)], &words[..], &pace, more].concat())
}

/// The one line that a refusal ends with, and its exit code.
fn refused(output: &std::process::Output) -> (i32, String) {
    let told = stderr(output);
    let line = told.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(!line.is_empty(), "{told}");
    (code(output).unwrap(), line.to_owned())
}

fn losses(run: &Path) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line["loss"].as_f64()).collect()
}

fn config(run: &Path) -> Value {
    serde_json::from_slice(&fs::read(run.join("config.json")).unwrap()).unwrap()
}

/// Where a key is, at whatever depth.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(key).or_else(|| object.values().find_map(|inner| find(inner, key)))
}

#[test]
fn a_run_of_a_residual_network_goes_on_is_tested_and_embeds() {
    let pictures = image_folder(8, 3);
    let data = format!("folder:{}", text(pictures.path()));
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("run");
    let options = ["--encoder", "resnet10", "--grey", "--image-size", "16"];
    json(&run(&parts, &data, &[&options[..], &["--steps", "1"]].concat()));
    let resumed = json(&run(&parts, &data, &[&options[..], &["--resume"]].concat()));
    assert_eq!(losses(&parts).len(), 2);
    let words = ["eval", text(&parts), "--json", "--episodes", "2"];
    let tested = json(&fewshot(&words));
    assert_eq!(tested["accuracy"], resumed["accuracy"]);
    json(&fewshot(&[&words[..], &["--method", "simpleshot"]].concat()));
    let (status, told) = refused(&fewshot(&[&words[..], &["--method", "dn4"]].concat()));
    assert!(told.contains("dn4 compares places of maps"), "{told}");
    assert!(told.contains("the features of resnet10 have not"), "{told}");
    assert_eq!(status, 2);
    let out = folder.path().join("model.fewshot");
    let support = ["--support", text(pictures.path()), "--out", text(&out), "--json"];
    let report = json(&fewshot(&[&["adapt", text(&parts)], &support[..]].concat()));
    assert_eq!(report["backbone"], format!("resnet10 of {}", text(&parts)));
    let picture = pictures.path().join("class0/0.png");
    json(&fewshot(&["predict", text(&out), text(&picture), "--json"]));
    assert_eq!(code(&fewshot(&["runs", "list", text(folder.path())])), Some(0));
}

/// DeepEMD is trained so in its paper: a classifier first, whose network then compares places.
#[test]
fn places_of_a_residual_network_are_compared_after_its_training_as_a_classifier() {
    let pictures = image_folder(8, 3);
    let data = format!("folder:{}", text(pictures.path()));
    let folder = tempfile::tempdir().unwrap();
    let [base, parts] = ["base", "run"].map(|name| folder.path().join(name));
    let options = ["--encoder", "resnet10", "--grey", "--image-size", "40", "--steps", "1"];
    let more = |more: &[&'static str]| [&options[..], more].concat();
    json(&brief(&base, &data, &more(&["--method", "simpleshot", "--batch-size", "4"])));
    let from = ["--method", "dn4", "--from", text(&base)];
    json(&run(&parts, &data, &[&options[..], &from].concat()));
    assert_eq!(losses(&parts).len(), 1);
    json(&fewshot(&["eval", text(&parts), "--json", "--episodes", "2"]));
}

#[test]
fn training_begins_with_weights_that_are_needed_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (class, red) in (0..8).zip([10, 40, 70, 100, 130, 160, 190, 220]) {
        draw(&root.join(format!("pictures/{class}")), [red, 90, 40], 2);
    }
    let data = format!("folder:{}", text(&root.join("pictures")));
    let file = weights(root);
    let spec = format!("efficientnet-lite0:{}", text(&file));
    let (begun, drawn) = (root.join("begun"), root.join("drawn"));
    let small = ["--image-size", "32"];
    let options = [&["--encoder", &spec][..], &small].concat();
    json(&run(&begun, &data, &[&options[..], &["--steps", "1"]].concat()));
    json(&run(&drawn, &data, &[&["--encoder", "efficientnet-lite0"][..], &small].concat()));
    assert_ne!(losses(&begun)[0], losses(&drawn)[0]);
    let of_weights = find(&config(&begun), "weights").expect("weights are noted").clone();
    assert_eq!(of_weights["sha256"].as_str().map(str::len), Some(64));
    // The checkpoint has all that is needed.
    fs::remove_file(&file).unwrap();
    json(&run(&begun, &data, &[&options[..], &["--resume"]].concat()));
    json(&fewshot(&["eval", text(&begun), "--json", "--episodes", "2"]));
    // Training moves what it began with.
    assert_eq!(losses(&begun).len(), 2);
    let (status, told) = refused(&run(&root.join("new"), &data, &options));
    assert!(status == 1 && told.contains("lite0.safetensors"), "{told}");
    assert!(!root.join("new").exists());
}

#[test]
fn an_encoder_goes_from_run_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, other] = ["first", "second", "other"].map(|name| folder.path().join(name));
    json(&run(&first, "glyphs", &["--encoder", "conv4:4"]));
    let network = find(&config(&first), "conv4").expect("the network is noted").clone();
    assert_eq!(network["channels"], 4);
    let spec = format!("run:{}", text(&first));
    json(&run(&second, "glyphs", &["--encoder", &spec]));
    assert_ne!(losses(&second)[0], losses(&first)[0]);
    json(&run(&other, "glyphs", &["--encoder", &spec, "--method", "fomaml"]));
    // Without a step the encoder stays what it was, and so does the loss of the next run's first episode.
    let still = folder.path().join("still");
    json(&run(&still, "glyphs", &["--encoder", &spec, "--lr", "1e-30"]));
    let spec_of_still = format!("run:{}", text(&still));
    let last = folder.path().join("last");
    json(&run(&last, "glyphs", &["--encoder", &spec_of_still]));
    let [one, again] = [&second, &last].map(|run| losses(run)[0]);
    assert!((one - again).abs() < 1e-4 * one.abs(), "{one} {again}");
    fs::remove_dir_all(&first).unwrap();
    json(&run(&second, "glyphs", &["--encoder", &spec, "--steps", "3", "--resume"]));
    json(&fewshot(&["eval", text(&other), "--json", "--episodes", "2"]));
}

#[test]
fn gradient_based_learners_take_networks_without_lanes_one_task_at_a_time() {
    let pictures = image_folder(8, 3);
    let data = format!("folder:{}", text(pictures.path()));
    let folder = tempfile::tempdir().unwrap();
    let tasks = ["--encoder", "resnet10", "--grey", "--image-size", "16", "--meta-batch", "2"];
    let steps = ["--inner-steps", "1", "--eval-inner-steps", "1", "--steps", "1"];
    let options = [&tasks[..], &steps, &["--method", "maml"]].concat();
    let trained = run(&folder.path().join("run"), &data, &options);
    json(&trained);
    let told = stderr(&trained);
    assert!(told.contains("has no lanes, tasks adapt one by one"), "{told}");
    assert!(told.contains("the memory that resnet10 takes is not known"), "{told}");
}

#[test]
fn the_default_network_leaves_no_word_in_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, named] = ["plain", "named"].map(|name| folder.path().join(name));
    json(&fewshot(&[&SMALL[..], &[text(&plain), "--steps", "1"]].concat()));
    json(&fewshot(&[&SMALL[..], &[text(&named), "--steps", "1", "--encoder", "conv4"]].concat()));
    assert_eq!(config(&plain), config(&named));
    assert!(find(&config(&plain), "encoder").is_none());
}

#[test]
fn a_network_that_cannot_be_is_one_line() {
    let pictures = image_folder(8, 3);
    let data = format!("folder:{}", text(pictures.path()));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let file = weights(folder.path());
    let of = |encoder: &str, more: &[&str]| {
        let said = refused(&run(&out, &data, &[&["--encoder", encoder][..], more].concat()));
        assert!(!out.exists(), "{said:?}");
        said
    };
    let (status, told) = of("resnet81", &[]);
    assert!(status == 2 && told.contains("did you mean \"resnet"), "{told}");
    let (status, told) = of("clip-b32", &[]);
    assert!(status == 1 && told.contains("multiples of 32, not of 84x84"), "{told}");
    let (_, told) = of("efficientnet-lite0", &["--grey"]);
    assert!(told.contains("efficientnet-lite0 takes images of 3 channels, not of 1"), "{told}");
    let (_, told) = of("resnet12", &["--image-size", "8"]);
    assert!(told.contains("resnet12 takes images of 16x16 pixels or more, not of 8x8"), "{told}");
    let (status, told) = of("resnet12", &["--method", "cavia"]);
    assert!(status == 2 && told.contains("cavia adapts a context, which conv4 has"), "{told}");
    let (status, told) = of("efficientnet-lite0", &["--method", "dn4"]);
    assert!(status == 2 && told.contains("dn4 compares places of maps"), "{told}");
    let (status, told) = of("resnet12", &["--precision", "f16"]);
    assert!(status == 2 && told.contains("resnet12 computes in f32"), "{told}");
    let (status, told) = of("resnet12", &["--memory-budget", "1GiB"]);
    assert!(status == 2 && told.contains("the memory that resnet12 takes is not known"), "{told}");
    let (status, told) = of(&format!("resnet10:{}", text(&file)), &["--image-size", "16"]);
    assert!(status == 1 && told.contains("has weights of another network"), "{told}");
    let (_, told) = of(&format!("run:{}", text(folder.path())), &[]);
    assert!(told.contains("no folder of a run"), "{told}");
    let sines = fewshot(&["train", "--data", "sinusoid", "--method", "maml", "--encoder", "conv4"]);
    let (status, told) = refused(&sines);
    assert!(status == 2 && told.contains("--encoder is for images, not for sinusoids"), "{told}");
}
