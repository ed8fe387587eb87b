//! Runs on data that has changed since.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use fewshot::train::RunFolder;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{complaint, fewshot, image_folder, json, small, stderr, untimed};

/// A folder of pictures, and a run of two steps on it.
struct Trained {
    images: tempfile::TempDir,
    folder: tempfile::TempDir,
    accuracy: Value,
}

impl Trained {
    fn new() -> Self {
        let (images, folder) = (image_folder(12, 8), tempfile::tempdir().unwrap());
        let mut trained = Self { images, folder, accuracy: Value::Null };
        trained.accuracy = json(&trained.train("run", &["--steps", "2"]))["accuracy"].clone();
        trained
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn data(&self) -> String {
        format!("folder:{}", self.images.path().display())
    }

    fn train(&self, name: &str, more: &[&str]) -> Output {
        let data = self.data();
        let size = ["--data", &data, "--image-size", "16", "--ways", "2", "--queries", "3"];
        small(&self.folder.path().join(name), &[&size[..], more].concat())
    }

    fn eval(&self, more: &[&str]) -> Output {
        let run = self.run();
        let test = ["eval", run.to_str().unwrap(), "--episodes", "20", "--json"];
        fewshot(&[&test[..], more].concat())
    }

    /// The names of a split's classes, as the run keeps them.
    fn classes(&self, split: &str) -> Vec<String> {
        let config = fs::read(self.run().join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let classes = config["user"]["classes"][split].as_array().unwrap().clone();
        classes.iter().map(|class| class.as_str().unwrap()[17..].to_owned()).collect()
    }

    fn class(&self, name: &str) -> PathBuf {
        self.images.path().join(name)
    }

    fn copy(&self, from: &str, to: &str) {
        fs::create_dir_all(self.class(to)).unwrap();
        for image in 0..8 {
            let name = format!("{image}.png");
            fs::copy(self.class(from).join(&name), self.class(to).join(&name)).unwrap();
        }
    }
}

#[test]
fn new_classes_are_left_out_of_tests_and_of_a_resumption() {
    let trained = Trained::new();
    let names = ["train", "validation", "test"].map(|split| trained.classes(split));
    assert_eq!(names.each_ref().map(Vec::len), [8, 2, 2]);
    json(&trained.train("whole", &["--steps", "4"]));
    for new in ["a", "b", "owl", "x", "y", "z"] {
        trained.copy("class0", new);
    }
    let output = trained.eval(&[]);
    assert_eq!(json(&output)["accuracy"], trained.accuracy);
    assert!(stderr(&output).contains("the run does not know them: "), "{}", stderr(&output));
    assert!(stderr(&output).contains(" and 1 more"), "{}", stderr(&output));
    json(&trained.train("run", &["--steps", "4", "--resume"]));
    // A run validates at its end as well, which the one that was never stopped has but once.
    let steps = |name: &str| -> Vec<String> {
        let metrics = untimed(&trained.folder.path().join(name));
        let steps = metrics.lines().filter(|line| !line.contains("validation"));
        steps.map(str::to_owned).collect()
    };
    assert_eq!(steps("run"), steps("whole"));
    assert_eq!(steps("run").len(), 4);
}

#[test]
fn a_renamed_test_class_is_named() {
    let trained = Trained::new();
    let test = trained.classes("test");
    fs::rename(trained.class(&test[1]), trained.class("renamed")).unwrap();
    let gone = format!("not those that the run was made with, no longer there: {}", test[1]);
    assert!(complaint(&trained.eval(&[])).ends_with(&gone), "{}", stderr(&trained.eval(&[])));
    let resumed = trained.train("run", &["--steps", "4", "--resume"]);
    assert!(complaint(&resumed).ends_with(&gone), "{}", stderr(&resumed));
    let (run, to) = (trained.run(), trained.folder.path().join("f.safetensors"));
    let embed = ["embed", run.to_str().unwrap(), "--to", to.to_str().unwrap()];
    assert!(complaint(&fewshot(&embed)).ends_with(&gone));
    json(&trained.train("new", &["--steps", "2"]));
}

#[test]
fn a_class_with_other_pictures_is_named() {
    let trained = Trained::new();
    let more = |class: &str| {
        let class = trained.class(class);
        fs::copy(class.join("0.png"), class.join("more.png")).unwrap();
    };
    let train = &trained.classes("train")[0];
    more(train);
    assert_eq!(json(&trained.eval(&[]))["accuracy"], trained.accuracy, "no test class changed");
    let resumed = complaint(&trained.train("run", &["--steps", "4", "--resume"]));
    assert!(resumed.ends_with(&format!("with other pictures: {train}")), "{resumed}");
    let test = &trained.classes("test")[0];
    more(test);
    let tested = complaint(&trained.eval(&[]));
    assert!(tested.ends_with(&format!("with other pictures: {test}")), "{tested}");
}

#[test]
fn other_data_with_names_of_training_classes_is_warned_of() {
    let trained = Trained::new();
    let same = format!("folder:{}/.", trained.images.path().display());
    assert_eq!(json(&trained.eval(&["--data", &same]))["accuracy"], trained.accuracy);
    let other = tempfile::tempdir().unwrap();
    let train = trained.classes("train");
    for (split, class) in [("train", "a"), ("val", "b"), ("test", &train[0]), ("test", "owl")] {
        let to = other.path().join(split).join(class);
        fs::create_dir_all(&to).unwrap();
        for image in 0..8 {
            let name = format!("{image}.png");
            fs::copy(trained.class("class0").join(&name), to.join(&name)).unwrap();
        }
    }
    let other = format!("folder:{}", other.path().display());
    let output = trained.eval(&["--data", &other]);
    json(&output);
    let warning = "warning: 1 of the 2 classes have names of classes that the run was trained on: ";
    assert!(stderr(&output).contains(&format!("{warning}{}", train[0])), "{}", stderr(&output));
}

/// The checkpoint without the classes of its run.
fn forget_classes(checkpoint: &Path) {
    let bytes = fs::read(checkpoint).unwrap();
    let length = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let (header, records) = bytes[16..bytes.len() - 32].split_at(length);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let settings = &mut header["settings"]["user"];
    settings.as_object_mut().unwrap().remove("classes").unwrap();
    let header = serde_json::to_vec(&header).unwrap();
    let mut bytes = [&bytes[..8], &(header.len() as u64).to_le_bytes(), &header, records].concat();
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    fs::write(checkpoint, bytes).unwrap();
}

#[test]
fn a_run_without_its_classes_is_read_with_a_warning() {
    let trained = Trained::new();
    for checkpoint in [RunFolder::best(&trained.run()), RunFolder::last(&trained.run())] {
        forget_classes(&checkpoint);
    }
    let warning = "warning: the run does not say which classes of folder:";
    let output = trained.eval(&[]);
    assert_eq!(json(&output)["accuracy"], trained.accuracy);
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
    let resumed = trained.train("run", &["--steps", "4", "--resume"]);
    assert_eq!(json(&resumed)["steps"], 4);
    assert!(stderr(&resumed).contains(warning), "{}", stderr(&resumed));
}

#[test]
#[cfg(target_os = "linux")]
fn refused_memory_is_one_line() {
    let limited = "ulimit -v $1; shift; exec \"$0\" \"$@\"";
    let start = |kilobytes: &str| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", limited, env!("CARGO_BIN_EXE_fewshot"), kilobytes]);
        command.args(["data", "info", "glyphs"]).output().unwrap()
    };
    // Room for the program itself differs; somewhere above it the check must be what answers.
    let outputs = (6..20).map(|step| start(&(step * 20_000).to_string()));
    let refused = outputs.filter(|output| stderr(output).contains("the system refuses"));
    let refused: Vec<Output> = refused.collect();
    assert!(!refused.is_empty());
    for output in refused {
        assert_eq!(complaint(&output), "error: the system refuses 64 MiB of memory");
    }
}
