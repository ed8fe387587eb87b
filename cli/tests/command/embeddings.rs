//! Models of embeddings that another program has made: `adapt`, `predict` and `eval` with `--features`.

use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::Flex;
use fewshot::adapted::AdaptedModel;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::pictures::text;
use super::{code, fewshot, json, stderr};

/// Rows of two classes, in the file `name` of the folder.
fn table(folder: &Path, name: &str, rows: &[(&str, [f32; 3])]) -> PathBuf {
    let line = |(label, [x, y, z]): &(&str, [f32; 3])| format!("{label},{x},{y},{z}\n");
    let file = folder.join(name);
    fs::write(&file, format!("label,x,y,z\n{}", rows.iter().map(line).collect::<String>()))
        .unwrap();
    file
}

/// A model of jokes and laws, in a folder of its own.
pub fn of_embeddings() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let rows = [
        ("law", [0.0, 1.0, 0.1]),
        ("joke", [1.0, 0.0, 0.2]),
        ("joke", [0.9, 0.1, 0.1]),
        ("law", [0.1, 0.9, 0.2]),
        ("law", [0.2, 0.8, 0.1]),
        ("law", [0.0, 1.0, 0.1]),
    ];
    let (file, out) = (table(folder.path(), "a.csv", &rows), folder.path().join("m.fewshot"));
    let made = fewshot(&["adapt", "--features", text(&file), "--out", text(&out), "--json"]);
    assert!(stderr(&made).contains("1 of 4 rows of law are there already"), "{}", stderr(&made));
    let report = json(&made);
    assert_eq!((&report["classes"], &report["shots"]), (&json!(["joke", "law"]), &json!([2, 3])));
    assert_eq!((&report["backbone"], &report["length"]), (&Value::Null, &json!(3)));
    assert_eq!(report["left_out_accuracy"], json!(100.0));
    (folder, out)
}

fn lines(output: &std::process::Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

fn names(model: &Path) -> (Vec<String>, usize) {
    let model = AdaptedModel::<Flex>::open(model, &Default::default()).unwrap();
    (model.class_names(), model.examples().rows())
}

#[test]
fn rows_of_a_file_are_classified() {
    let (folder, model) = of_embeddings();
    // Without labels, in an array of NumPy.
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n";
    let values = [0.1, 0.9, 0.1, 1.0, 0.2, 0.2_f64].map(f64::to_le_bytes).concat();
    let length = (header.len() as u16).to_le_bytes();
    let array = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &values].concat();
    let file = folder.path().join("new.npy");
    fs::write(&file, array).unwrap();
    let found = fewshot(&["predict", text(&model), "--features", text(&file)]);
    assert_eq!(code(&found), Some(0), "{}", stderr(&found));
    let plain = lines(&found);
    assert!(plain[0].starts_with(&format!("{}:0: law 0.", text(&file))), "{plain:?}");
    assert!(plain[1].contains("new.npy:1: joke 0."), "{plain:?}");

    let options = ["--json", "--top", "2", "--unknown", "1"];
    let found =
        fewshot(&[&["predict", text(&model), "--features", text(&file)], &options[..]].concat());
    let second: Value = serde_json::from_str(&lines(&found)[1]).unwrap();
    assert_eq!((&second["row"], &second["class"]), (&json!(1), &Value::Null));
    assert_eq!(second["classes"][0]["class"], "joke");
    let library = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    let prediction = &library.classify(&[1.0, 0.2, 0.2]).unwrap()[0];
    let probability = second["classes"][0]["probability"].as_f64().unwrap();
    assert!((probability - prediction.probability()).abs() < 1e-4);
}

#[test]
fn rows_and_classes_of_a_file_are_added() {
    let (folder, model) = of_embeddings();
    let rows = [("poem", [0.0, 0.1, 1.0]), ("law", [0.0, 1.0, 0.1]), ("law", [0.1, 1.0, 0.0])];
    let more = table(folder.path(), "more.csv", &rows);
    for there in ["1 of 2 rows of law", "2 of 2 rows of law"] {
        let added = fewshot(&["adapt", text(&model), "--features", text(&more)]);
        assert_eq!(code(&added), Some(0), "{}", stderr(&added));
        assert!(stderr(&added).contains(there), "{}", stderr(&added));
        assert_eq!(names(&model), (["joke", "law", "poem"].map(str::to_owned).to_vec(), 7));
    }
    let removed = fewshot(&["adapt", text(&model), "--remove", "joke"]);
    assert_eq!(code(&removed), Some(0), "{}", stderr(&removed));
    let said = lines(&removed);
    assert_eq!(said[0], "2 classes from 5 rows by simpleshot on embeddings of 3 values");
    assert_eq!(names(&model).0, ["law", "poem"]);
}

#[test]
fn what_a_model_of_embeddings_does_not_take_is_refused_in_a_line() {
    let (folder, model) = of_embeddings();
    let before = fs::read(&model).unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("short.csv"), "x,y\n1,2\n").unwrap();
    fs::write(path("nan.csv"), "label,x,y,z\na,1,2,3\na,1,NaN,3\n").unwrap();
    fs::write(path("bare.csv"), "x,y,z\n1,2,3\n").unwrap();
    fs::write(path("short_labelled.csv"), "label,x\na,1\n").unwrap();
    let (bare, nan, short) = (path("bare.csv"), path("nan.csv"), path("short.csv"));
    let (model_, out, folder_) = (text(&model), path("new.fewshot"), text(folder.path()));
    let short_labelled = path("short_labelled.csv");
    for (words, status, why) in [
        (vec!["predict", model_, text(&bare)], 2, "it has no network, and takes no pictures"),
        (
            vec!["predict", model_, "--features", text(&short)],
            1,
            "embeddings have 2 values, those of the model have 3",
        ),
        (
            vec!["predict", model_, "--features", text(&nan)],
            1,
            "nan.csv: line 3, column y is \"NaN\", not a finite number",
        ),
        (vec!["adapt", model_, "--features", text(&bare)], 1, "its rows have no labels"),
        (
            vec!["adapt", model_, "--features", text(&short_labelled)],
            1,
            "those of the model have 3",
        ),
        (
            vec!["adapt", "--features", text(&bare), "--support", folder_, "--out", text(&out)],
            2,
            "--support is for pictures",
        ),
        (
            vec!["adapt", model_, "--labels", text(&bare), "--remove", "law"],
            2,
            "--labels are those of --features",
        ),
        (
            vec!["predict", model_, "--weights", text(&bare), "--features", text(&bare)],
            2,
            "it has no network",
        ),
    ] {
        let refused = fewshot(&words);
        let said = stderr(&refused);
        assert!(said.contains(why) && said.trim_end().lines().count() == 1, "{words:?}: {said}");
        assert_eq!(code(&refused), Some(status), "{words:?}: {said}");
    }
    assert_eq!(fs::read(&model).unwrap(), before);
    assert!(!out.exists());
}

#[test]
fn methods_are_tested_on_rows_with_labels_beside_them() {
    let folder = TempDir::new().unwrap();
    let rows = |seed: f32| (0..40).map(move |at| format!("{},{}\n", at % 2, seed + at as f32));
    let file = folder.path().join("f.csv");
    fs::write(&file, format!("x,y\n{}", rows(0.5).collect::<String>())).unwrap();
    let labels = folder.path().join("labels.txt");
    fs::write(&labels, (0..40).map(|at| format!("{}\n", at % 2)).collect::<String>()).unwrap();
    let words = [
        "eval",
        "--features",
        text(&file),
        "--ways",
        "2",
        "--shots",
        "1",
        "--episodes",
        "5",
        "--json",
    ];
    let report = json(&fewshot(
        &[&words[..], &["--labels", text(&labels), "--method", "prototypes"]].concat(),
    ));
    assert_eq!((&report["classes"], &report["rows"]), (&json!(2), &json!(40)));
    let refused = fewshot(&words);
    assert_eq!(code(&refused), Some(1));
    assert!(stderr(&refused).contains("its rows have no labels"), "{}", stderr(&refused));
}
