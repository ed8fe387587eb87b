//! `fewshot export`: models and networks as ONNX files. What they compute is compared by `tests/onnx/check.py`.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::adapt_run::adapted_run;
use super::embeddings::of_embeddings;
use super::inner_loop::adaptive;
use super::pictures::text;
use super::{code, fewshot, json, stderr};

fn has(file: &[u8], part: &str) -> bool {
    file.windows(part.len()).any(|window| window == part.as_bytes())
}

#[test]
fn a_model_has_classes_and_the_network_alone_is_that_of_its_run() {
    let (folder, model) = adapted_run(&[]);
    let root = folder.path();
    let [whole, network, run] =
        ["whole", "network", "run"].map(|of| root.join(of).with_extension("onnx"));
    let report = json(&fewshot(&["export", text(&model), "--to", text(&whole), "--json"]));
    let file = fs::read(&whole).unwrap();
    assert_eq!(report["classes"], json!(["green", "red"]));
    assert_eq!(report["outputs"], json!(["probabilities", "known"]));
    assert_eq!((&report["pictures"], &report["input"]), (&json!([3, 20, 20]), &json!("u8")));
    assert_eq!(report["bytes"], json!(file.len()));
    for part in [r#"["green","red"]"#, r#""fit":"stretch""#, "probabilities", "known", "prototypes"]
    {
        assert!(has(&file, part), "{part}");
    }

    let words = ["export", text(&model), "--embeddings", "--to", text(&network)];
    let told = fewshot(&words);
    assert_eq!(code(&told), Some(0), "{}", stderr(&told));
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.contains("network.onnx: pictures of 3x20x20 to embeddings of 64 values"),
        "{told}"
    );
    let alone = json(&fewshot(&["export", text(&root.join("run")), "--to", text(&run), "--json"]));
    assert_eq!((&alone["classes"], &alone["features"]), (&json!(null), &json!(64)));
    assert_eq!(fs::read(&network).unwrap(), fs::read(&run).unwrap());
    assert!(!has(&fs::read(&run).unwrap(), "probabilities"));
}

#[test]
fn what_cannot_be_exported_is_refused_in_a_line() {
    let (folder, model) = adapted_run(&[]);
    let root = folder.path();
    let out = root.join("out.onnx");
    let refused = |given: &Path, to: &Path, more: &[&str], status, part: &str| {
        let words = [&["export", text(given), "--to", text(to)], more].concat();
        let output = fewshot(&words);
        let told = stderr(&output);
        assert_eq!(code(&output), Some(status), "{words:?}: {told}");
        let line = told.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: ") && line.contains(part), "{words:?}: {told}");
        assert!(!out.is_file(), "{words:?}");
    };
    refused(&model, &root.join("out.pb"), &[], 2, "--to writes .onnx, not ");
    refused(&root.join("nowhere"), &out, &[], 1, "neither a model nor a run");
    refused(&root.join("pictures/test/red/0.png"), &out, &[], 1, "no adapted model");
    refused(&root.join("pictures"), &out, &[], 2, "is no folder of a run");
    refused(&root.join("run"), &out, &["--weights", "x"], 2, "--weights is for a model");
    refused(&model, &root.join("missing/out.onnx"), &[], 1, "missing/out.onnx");
    fs::create_dir(root.join("folder.onnx")).unwrap();
    refused(&model, &root.join("folder.onnx"), &[], 2, "folder.onnx is a folder");

    let (run, support, other) = (root.join("run"), root.join("pictures/test"), root.join("other"));
    for (method, why) in [("dn4", "nearest neighbours"), ("deep-emd", "linear programme")] {
        let words = ["adapt", text(&run), "--support", text(&support), "--method", method];
        let adapted = fewshot(&[&words[..], &["--out", text(&other)]].concat());
        assert_eq!(code(&adapted), Some(0), "{}", stderr(&adapted));
        refused(&other, &out, &[], 2, why);
    }
    for (method, part) in [("maml", "no running averages"), ("plastic", "connections of its own")] {
        let run = root.join(method);
        let trained = adaptive(&run, method, &[]);
        assert_eq!(code(&trained), Some(0), "{}", stderr(&trained));
        refused(&run, &out, &[], 2, part);
    }
    let waves = root.join("waves");
    let train = ["train", "--method", "maml", "--data", "sinusoid", "--steps", "2", "--json"];
    let trained = fewshot(&[&train[..], &["--eval-episodes", "2", "--out", text(&waves)]].concat());
    assert_eq!(code(&trained), Some(0), "{}", stderr(&trained));
    refused(&waves, &out, &[], 2, "sine waves");
}

#[test]
fn a_network_in_low_precision_is_exported_in_f32_and_says_so() {
    let (folder, _) = adapted_run(&["--precision", "bf16"]);
    let to = folder.path().join("run.onnx");
    let output = fewshot(&["export", text(&folder.path().join("run")), "--to", text(&to)]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("products in bf16, the file in f32"), "{}", stderr(&output));
    assert!(to.is_file());
}

#[test]
fn a_model_without_a_network_is_not_exported() {
    let (folder, model) = of_embeddings();
    let to = folder.path().join("m.onnx");
    for more in [&[][..], &["--embeddings"]] {
        let output = fewshot(&[&["export", text(&model), "--to", text(&to)], more].concat());
        assert_eq!(code(&output), Some(2), "{}", stderr(&output));
        let complaint = stderr(&output);
        assert!(
            complaint.lines().last().unwrap().contains("no network of pictures"),
            "{complaint}"
        );
        assert!(!to.exists());
    }
}
