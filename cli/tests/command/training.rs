//! Training on images.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{
    BACKENDS, SMALL, code, complaint, fewshot, image_folder, json, small, stderr, untimed,
};

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

#[test]
fn a_last_training_learns_from_validation_classes_too() {
    let folder = tempfile::tempdir().unwrap();
    let images = image_folder(12, 8);
    let data = format!("folder:{}", images.path().display());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [run, next, features] = ["run", "next", "validation.safetensors"].map(path);
    let size = ["train", "--data", &data, "--image-size", "16", "--ways", "2", "--queries", "3"];
    // All eight classes of training and two of validation, in each step.
    let all = ["--train-ways", "10", "--train-queries", "1", "--steps", "2"];
    let rest = ["--eval-episodes", "20", "--json"];
    let train =
        |out: &str, more: &[&str]| fewshot(&[&size[..], &rest, &["--out", out], more].concat());
    let refused = complaint(&train(&run, &all));
    assert!(refused.contains("needs 10 classes, the split has 8"), "{refused}");
    let on_validation = [&all[..], &["--train-on-validation"]].concat();
    let trained = train(&run, &on_validation);
    let text = stderr(&trained);
    let reason = "the last step is tested: the validation classes are learned from";
    assert!(text.contains(reason), "{text}");
    let report = json(&trained);
    assert_eq!(report["protocol"]["selected_by"], "last step");
    let parts = serde_json::json!(["train", "validation"]);
    assert_eq!(report["protocol"]["trained_on"], parts);
    assert!(!folder.path().join("run/best.ckpt").exists());
    let tested = json(&fewshot(&["eval", &run, "--episodes", "20", "--json"]));
    assert_eq!(tested["protocol"]["trained_on"], parts);
    assert_eq!(tested["accuracy"], report["accuracy"]);

    // The run goes on as such alone, and whoever uses its validation classes is warned.
    let resumed = complaint(&train(&run, &["--train-ways", "5", "--steps", "3", "--resume"]));
    assert!(resumed.contains("was made with tasks.classes 10, this run has 8"), "{resumed}");
    let three = [&all[..4], &["--steps", "3", "--train-on-validation", "--resume"]].concat();
    assert_eq!(json(&train(&run, &three))["steps"], 3);
    let part = ["embed", &run, "--part", "validation", "--to", &features];
    let warned = stderr(&fewshot(&part));
    assert!(warned.contains("trained on its validation classes"), "{warned}");
    let from = train(&next, &["--train-ways", "5", "--steps", "2", "--from", &run]);
    let warned = stderr(&from);
    assert!(warned.contains("was trained on the validation classes"), "{warned}");

    for useless in ["--patience", "--validate-every", "--validation-episodes"] {
        let both = fewshot(&["train", "--train-on-validation", useless, "3"]);
        assert_eq!(code(&both), Some(2), "{useless}");
    }
    let waves = ["--data", "sinusoid", "--method", "maml", "--train-on-validation"];
    let text = stderr(&fewshot(&[&["train"], &waves[..]].concat()));
    assert!(text.contains("--train-on-validation is for images"), "{text}");
}
