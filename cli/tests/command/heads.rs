//! Classifiers over embeddings: trained, put on encoders, tested on features.

use std::fs;

use fewshot::data::Features;
use serde_json::{Value, json};

use super::{classical, code, complaint, fewshot, json, small, stderr, untimed};

/// What a wrong use is answered by.
fn usage(output: &std::process::Output) -> String {
    assert_eq!(code(output), Some(2), "{}", stderr(output));
    stderr(output)
}

#[test]
fn a_head_is_put_on_the_encoder_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let trained = json(&classical(&run, &["--method", "simpleshot", "--label-smoothing", "0.1"]));
    let train = &trained["protocol"]["train"];
    assert_eq!(train["on"], "all training classes");
    assert_eq!((&train["sampling"], &train["images"]), (&json!("mini_batch"), &json!(15)));
    assert_eq!(trained["protocol"]["transductive"], false);
    let run = run.to_str().unwrap();
    let eval =
        |more: &[&str]| fewshot(&[&["eval", run, "--episodes", "6", "--json"], more].concat());
    for (method, transductive) in [("tim-adm", true), ("protonet", false), ("logistic", false)] {
        let told = json(&eval(&["--method", method]));
        assert_eq!(told["protocol"]["method"], method);
        assert_eq!(told["protocol"]["transductive"], transductive, "{method}");
        assert!(told["accuracy"].as_f64().unwrap() > 20.0, "{told}");
    }
    // The run's own head, which the checkpoint has.
    let own = json(&eval(&[]));
    assert_eq!(own["accuracy"], json(&eval(&["--method", "simpleshot"]))["accuracy"]);
    assert!(usage(&eval(&["--method", "maml"])).contains("maml"));
    assert!(usage(&eval(&["--method", "tim"])).contains("no method \"tim\""));
    assert!(usage(&eval(&["--method", "tim-gd,tim-adm"])).contains("--features"));
    assert!(usage(&eval(&["--shots", "1,5"])).contains("--features"));
    for option in [&["--plot", "a.svg"][..], &["--base-features", "f"], &["--unbalanced"]] {
        assert!(usage(&eval(option)).contains("for --features"));
    }
}

#[test]
fn episodes_or_classes_train_what_they_can() {
    let folder = tempfile::tempdir().unwrap();
    let brief = ["--steps", "2", "--eval-episodes", "2"];
    let run = |name: &str, options: &[&str]| {
        small(&folder.path().join(name), &[&brief[..], options].concat())
    };
    let told = json(&run("r2d2", &["--method", "r2d2"]));
    assert_eq!(told["protocol"]["train"]["on"], "episodes");
    let cosine = ["--method", "baseline++", "--base-logits", "cosine", "--rotation-loss", "0.5"];
    let told = json(&classical(&folder.path().join("cosine"), &[&brief[..], &cosine].concat()));
    assert_eq!(told["protocol"]["train"]["on"], "all training classes");
    let refused = [
        (&["--method", "tim-gd"][..], "eval RUN --method tim-gd"),
        (&["--method", "logistic", "--train", "episodes"], "--train classify"),
        (&["--method", "protonet", "--train", "classify"], "not for protonet"),
        (&["--method", "r2d2", "--label-smoothing", "0.1"], "--train classify"),
        (&["--method", "simpleshot", "--label-smoothing", "1"], "below 1"),
        (&["--method", "simpleshot", "--rotation-loss=-1"], "from 0 on"),
        (&["--method", "simpleshot", "--inner-steps", "3"], "no inner loop"),
        (&["--method", "simpleshot"], "--train-ways is not for --train classify"),
        (&["--method", "protonet", "--batch-size", "64"], "--batch-size is for --train classify"),
    ];
    for (options, wanted) in refused {
        let told = usage(&run("refused", options));
        assert!(told.contains(wanted), "{options:?}: {told}");
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn mini_batches_are_gathered_on_a_device_as_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--method", "simpleshot", "--backend", "wgpu", "--steps", "3"];
    let tests = ["--validation-episodes", "1", "--eval-episodes", "2"];
    let options = [&options[..], &tests].concat();
    let [device, host] = ["device", "host"].map(|data_on| {
        let run = folder.path().join(data_on);
        let report = json(&classical(&run, &[&options[..], &["--data-on", data_on]].concat()));
        assert_eq!(report["data_on"], data_on);
        untimed(&run)
    });
    assert_eq!(device, host);
}

#[test]
fn features_are_written_and_tested_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (run, test, base, bars) =
        (at("run"), at("test.safetensors"), at("base.safetensors"), at("bars.svg"));
    json(&classical(run.as_ref(), &["--method", "simpleshot"]));
    for (part, to) in [("test", &test), ("train", &base)] {
        let told = fewshot(&["embed", &run, "--part", part, "--to", to]);
        assert_eq!(code(&told), Some(0), "{}", stderr(&told));
    }
    let protocol = ["--episodes", "8", "--ways", "3", "--shots", "1,2", "--queries", "4"];
    let eval =
        |more: &[&str]| fewshot(&[&["eval", "--features", &test], &protocol[..], more].concat());
    let told = json(&eval(&["--base-features", &base, "--plot", &bars, "--json"]));
    assert_eq!(told["base_mean"], true);
    let results = told["results"].as_array().unwrap();
    let of = |shots: u64| {
        let rows = results.iter().filter(move |row| row["shots"] == shots);
        rows.collect::<Vec<&Value>>()
    };
    for shots in [1, 2] {
        let rows = of(shots);
        assert!(rows.len() >= 18, "{} methods", rows.len());
        let accuracies: Vec<_> = rows.iter().map(|row| row["accuracy"].as_f64().unwrap()).collect();
        assert!(accuracies.is_sorted_by(|a, b| a >= b), "{accuracies:?}");
        let of = |name: &str| rows.iter().find(|row| row["method"] == name).unwrap();
        assert_eq!(of("pt-map")["transductive"], true);
        assert_eq!(of("simpleshot")["transductive"], false);
    }
    assert!(fs::read_to_string(&bars).unwrap().contains("</svg>"));
    let table = eval(&["--method", "simpleshot,bd-cspn", "--unbalanced"]);
    let text = String::from_utf8(table.stdout.clone()).unwrap();
    assert!(text.contains("bd-cspn *") && text.contains("alpha 2"), "{text}");

    assert!(usage(&eval(&["--method", "nonsense"])).contains("pt-map"));
    assert!(usage(&eval(&["--data", "glyphs"])).contains("--features"));
    assert!(complaint(&fewshot(&["eval", "--features", &at("none.safetensors")])).contains("none"));
    let maml = at("maml");
    json(&small(maml.as_ref(), &["--method", "fomaml"]));
    let told = usage(&fewshot(&["embed", &maml, "--to", &at("maml.safetensors")]));
    assert!(told.contains("fomaml"), "{told}");
}

/// A file of 12 classes with 3 rows of 4 numbers each.
fn many_classes(folder: &std::path::Path) -> String {
    let row = |class: usize| (0..12).map(move |at| ((class * 31 + at * 17) % 101) as f32);
    let classes = (0..12).map(|class| (format!("{class:02}"), row(class).collect()));
    let path = folder.join("many.safetensors");
    Features::new(4, classes).unwrap().write(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn each_method_says_what_it_tests_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = many_classes(folder.path());
    let protocol = ["--ways", "12", "--shots", "1", "--queries", "2", "--episodes", "2"];
    let options = ["--method", "prototypes,bd-cspn,logistic", "--json"];
    let output = fewshot(&[&["eval", "--features", &file], &protocol[..], &options].concat());
    let results = json(&output)["results"].as_array().unwrap().len();
    assert_eq!(results, 3);
    for method in ["prototypes", "bd-cspn", "logistic"] {
        let line = format!("{method}: testing 2 episodes of 12 ways");
        assert_eq!(stderr(&output).lines().filter(|told| *told == line).count(), 1, "{line}");
    }
}

#[test]
#[cfg(unix)]
fn a_long_test_says_its_cost_and_ends_at_an_interrupt() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().unwrap();
    let file = many_classes(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(["eval", "--features", &file, "--method", "tim-adm", "--episodes", "1000000"]);
    command.args(["--ways", "3", "--shots", "1", "--queries", "2"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let cost = lines.find(|line| line.contains(" an episode of 3 ways, about "));
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    let cost = cost.expect("the cost is told");
    assert!(cost.starts_with("tim-adm: ") && cost.ends_with(" for 1000000 episodes"), "{cost}");
}
