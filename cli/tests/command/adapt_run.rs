//! `fewshot adapt RUN`: a network that was trained here, in the file of the model.

use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorData};
use fewshot::adapt::InnerLoop;
use fewshot::adapted::{AdaptedModel, AdaptedModelError, BackboneOrigin};
use fewshot::data::{
    ClassDataset, DataError, Features, Picture, QuarterTurn, ReadOptions, image_folder,
};
use fewshot::learners::{Maml, ProtoNet};
use fewshot::models::{BnStatistics, Classifier, Conv4Config, Encoder};
use fewshot::train::Checkpoint;
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::inner_loop::adaptive;
use super::pictures::{BLUE, GREEN, RED, draw, text};
use super::{classical, code, fewshot, json, small, stderr};

/// Pixels along a side of the run's images.
const SIDE: usize = 20;

/// A short run on coloured pictures and a model of two of its test classes, which are in `pictures/test`.
pub fn adapted_run(method: &[&str]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    let classes = [[90, 90, 10], [10, 90, 90], [90, 10, 90], [150, 80, 10], [10, 80, 150]];
    for (number, colour) in classes.into_iter().enumerate() {
        let part = if number < 3 { "train" } else { "val" };
        draw(&root.join(format!("pictures/{part}/{number}")), colour, 9);
    }
    draw(&root.join("pictures/test/red"), RED, 9);
    draw(&root.join("pictures/test/green"), GREEN, 9);
    let data = format!("folder:{}", text(&root.join("pictures")));
    let side = SIDE.to_string();
    let shape = ["--data", &data, "--image-size", &side, "--ways", "2", "--train-ways", "3"];
    let trained = small(&root.join("run"), &[&shape[..], &["--queries", "3"], method].concat());
    assert_eq!(code(&trained), Some(0), "{}", stderr(&trained));
    let (run, out) = (root.join("run"), root.join("colours.fewshot"));
    let support = root.join("pictures/test");
    let words = ["adapt", text(&run), "--support", text(&support), "--out", text(&out), "--json"];
    let report = json(&fewshot(&words));
    assert_eq!(report["backbone"], format!("conv4 of {}", text(&run)));
    assert_eq!(report["classes"], json!(["green", "red"]));
    let metric = method.contains(&"--metric");
    assert_eq!(report["method"], if metric { "simpleshot" } else { "prototypes" });
    (folder, out)
}

fn open(model: &Path) -> AdaptedModel<Flex> {
    AdaptedModel::open(model, &Default::default()).unwrap()
}

#[test]
fn features_are_those_of_the_learner_on_images_that_it_trains_on() {
    let (folder, model) = adapted_run(&[]);
    let device = Default::default();
    let checkpoint = Checkpoint::read(&folder.path().join("run/best.ckpt")).unwrap();
    let config = Conv4Config::new([3, SIDE, SIDE]);
    let learner = ProtoNet::new(config.init::<Autodiff<Flex>>(&device));
    let learner = checkpoint.load::<Autodiff<Flex>, _, _>(learner, &device).unwrap();
    let encoder = burn::module::AutodiffModule::valid(learner.encoder());

    let pictures = folder.path().join("pictures/test");
    let read = image_folder(pictures, &ReadOptions::square(SIDE)).unwrap().data;
    let examples = open(&model).examples().clone();
    for class in 0..2 {
        assert_eq!(read.class_name(class), examples.class_name(class));
        for (example, row) in examples.rows_of(class).enumerate() {
            let mut bytes = vec![0; 3 * SIDE * SIDE];
            read.write_image(class, example, QuarterTurn::R0, &mut bytes).unwrap();
            let values: Vec<_> =
                bytes.iter().map(|&byte| f32::from(byte) * (1.0 / 255.0)).collect();
            let image = TensorData::new(values, [1, 3, SIDE, SIDE]);
            let image = Tensor::<Flex, 4>::from_data(image, &device);
            let wanted = encoder.encode(image, BnStatistics::Running).into_data();
            assert_eq!(
                examples.row(row),
                wanted.iter::<f32>().collect::<Vec<_>>(),
                "{class} {row}"
            );
        }
    }
    let origin = open(&model).backbone().unwrap().origin().clone();
    let BackboneOrigin::Trained(network) = origin else { panic!("{origin} is published") };
    let run = network.run.unwrap();
    assert_eq!((network.network, run.method.as_str()), (config.into(), "protonet"));
    assert!(run.data.starts_with("folder:") && run.sha256.len() == 64, "{run:?}");
}

#[test]
fn a_model_outlives_its_run() {
    let (folder, model) = adapted_run(&[]);
    let root = folder.path();
    fs::remove_dir_all(root.join("run")).unwrap();
    let pictures = root.join("pictures/test");
    let predict = |folder: &Path, class: &str| {
        let found = fewshot(&["predict", text(&model), text(folder)]);
        let lines = String::from_utf8(found.stdout.clone()).unwrap();
        assert_eq!(code(&found), Some(0), "{}", stderr(&found));
        assert!(lines.lines().count() == 9, "{lines}");
        assert!(
            lines.lines().all(|line| line.contains(&format!(": {class} 0."))
                || line.contains(&format!(": {class} 1."))),
            "{lines}"
        );
    };
    predict(&pictures.join("red"), "red");
    let before = open(&model).examples().values().to_vec();

    draw(&root.join("blue"), BLUE, 9);
    let added = fewshot(&["adapt", text(&model), "--add", text(&root.join("blue"))]);
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
    let told = String::from_utf8(added.stdout).unwrap();
    assert!(told.starts_with("3 classes from 27 pictures by prototypes on conv4 of "), "{told}");
    predict(&root.join("blue"), "blue");
    predict(&pictures.join("green"), "green");
    let removed = json(&fewshot(&["adapt", text(&model), "--remove", "blue", "--json"]));
    assert_eq!(removed["classes"], json!(["green", "red"]));
    assert_eq!(open(&model).examples().values(), before);

    let picture = pictures.join("red/0.png");
    let weights = ["predict", text(&model), text(&picture), "--weights", text(&picture)];
    let refused = fewshot(&weights);
    assert_eq!(code(&refused), Some(2));
    assert!(stderr(&refused).contains("has the weights of its network in it"));
}

/// Versions that know of no weights in a file read all tensors as classes, and then the format.
#[test]
fn versions_before_find_a_format_that_they_do_not_know() {
    let (folder, model) = adapted_run(&["--metric", "cosine"]);
    let as_features = folder.path().join("colours.safetensors");
    fs::copy(&model, &as_features).unwrap();
    let features = Features::open(&as_features).unwrap();
    assert!(features.metadata()["fewshot_adapted"].starts_with("{\"format\":2,"));
    let names: Vec<_> = (0..3).map(|class| features.class_name(class)).collect();
    assert_eq!(names, ["backbone/parameters", "green", "red"]);
    // No class can have the name of such a tensor.
    let model = open(&model);
    let examples = Features::new(1, [("backbone/x".into(), vec![1.0]), ("y".into(), vec![2.0])]);
    let named =
        AdaptedModel::adapt(model.backbone().unwrap().clone(), "simpleshot", examples.unwrap());
    assert!(matches!(named.err(), Some(AdaptedModelError::Data(DataError::ClassName { .. }))));
}

#[test]
fn what_is_no_run_to_adapt_is_told_in_a_line() {
    let (folder, model) = adapted_run(&[]);
    let root = folder.path();
    let (run, support) = (root.join("run"), root.join("pictures/test"));
    let (run, support, out) = (text(&run), text(&support), root.join("other.fewshot"));
    let refused = |words: &[&str], status: i32, part: &str| {
        let output = fewshot(&[&["adapt"], words].concat());
        assert!(!out.exists());
        let why = stderr(&output);
        assert_eq!((code(&output), why.lines().count()), (Some(status), 1), "{words:?}: {why}");
        assert!(why.contains(part), "{words:?}: {why}");
    };
    let new = ["--support", support, "--out", text(&out)];
    let of = |run: &Path| {
        [&[text(run)], &new[..]].concat().iter().map(|word| word.to_string()).collect::<Vec<_>>()
    };
    let refused_run = |run: &Path, status: i32, part: &str| {
        let words = of(run);
        refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), status, part);
    };
    refused(&[run], 2, "is a run: --support is needed");
    refused(&[run, "--support", support], 2, "is a run: --out is needed");
    let all = |more: &[&'static str]| [&[run][..], &new, more].concat();
    refused(&all(&["--add", "x"]), 2, "--add is for a model");
    refused(&all(&["--remove", "red"]), 2, "--remove is for a model");
    refused(&all(&["--weights", "x"]), 2, "--weights is for a model");
    refused(&all(&["--method", "leo"]), 2, "there is no method \"leo\"");
    refused_run(&root.join("nowhere"), 1, "neither a model nor a run");
    refused_run(&root.join("pictures"), 2, "is no folder of a run");
    refused_run(&model, 2, "--support is for a new model");
    refused(&[text(&model), "--method", "logistic", "--remove", "red"], 2, "--method is for a new");
    refused(&[text(&model)], 2, "--remove says what to change");
    let weightless = ["--backbone", "resnet18:x", "--add", "y"];
    refused(&[&weightless[..], &new].concat(), 2, "--add is for a model");
    let damaged = root.join("damaged.ckpt");
    fs::write(&damaged, &fs::read(root.join("run/best.ckpt")).unwrap()[..1000]).unwrap();
    refused_run(&damaged, 1, "is damaged");

    let waves = root.join("waves");
    let train = ["train", "--method", "maml", "--data", "sinusoid", "--steps", "2", "--json"];
    let trained = fewshot(&[&train[..], &["--eval-episodes", "2", "--out", text(&waves)]].concat());
    assert_eq!(code(&trained), Some(0), "{}", stderr(&trained));
    refused_run(&waves, 2, "sine waves");
    for (method, part) in [("maml++", "every inner step"), ("plastic", "connections")] {
        let run = root.join(method);
        let trained = adaptive(&run, method, &[]);
        assert_eq!(code(&trained), Some(0), "{}", stderr(&trained));
        refused_run(&run, 2, part);
    }
}

#[test]
fn ink_on_paper_is_taken_by_a_run_on_glyphs() {
    let folder = TempDir::new().unwrap();
    let run = folder.path().join("run");
    assert_eq!(
        code(&classical(&run, &["--method", "logistic", "--train", "classify", "--steps", "2"])),
        Some(0)
    );
    draw(&folder.path().join("support/a"), [20; 3], 3);
    draw(&folder.path().join("support/b"), [220; 3], 3);
    let (support, out) = (folder.path().join("support"), folder.path().join("ink.fewshot"));
    let words = ["adapt", text(&run), "--support", text(&support), "--out", text(&out), "--json"];
    let report = json(&fewshot(&words));
    assert_eq!((&report["method"], &report["pictures"]), (&json!("simpleshot"), &json!(6)));
    let model = open(&out);
    let picture = Picture::open(support.join("a/0.png")).unwrap();
    let dark = model.backbone().unwrap().origin().preparation().apply(&picture);
    assert!(dark.len() == 28 * 28 && dark.iter().all(|value| *value > 0.7), "{dark:?}");
}

/// Its body embeds pictures as MAML embeds a support: with the moments of all of them.
#[test]
fn a_run_of_maml_takes_averages_from_the_pictures() {
    let folder = TempDir::new().unwrap();
    let run = folder.path().join("run");
    assert_eq!(code(&adaptive(&run, "maml", &[])), Some(0));
    draw(&folder.path().join("support/a"), [20; 3], 4);
    draw(&folder.path().join("support/b"), [220; 3], 4);
    let (support, out) = (folder.path().join("support"), folder.path().join("ink.fewshot"));
    let adapted =
        fewshot(&["adapt", text(&run), "--support", text(&support), "--out", text(&out), "--json"]);
    assert_eq!(json(&adapted)["method"], "simpleshot");
    assert!(stderr(&adapted).contains("maml gathers no running averages"), "{}", stderr(&adapted));

    let device = Default::default();
    let config = Conv4Config::omniglot_strided();
    let encoder = config.init::<Autodiff<Flex>>(&device);
    let learner = Maml::new(Classifier::new(encoder, 64, 5, &device), InnerLoop::new(1, 0.4));
    let checkpoint = Checkpoint::read(&run.join("best.ckpt")).unwrap();
    let learner = checkpoint.load::<Autodiff<Flex>, _, _>(learner.unwrap(), &device).unwrap();
    let encoder = burn::module::AutodiffModule::valid(&learner.network().encoder);
    let model = open(&out);
    let preparation = model.backbone().unwrap().origin().preparation();
    let file = |class: &str, number: u32| support.join(format!("{class}/{number}.png"));
    let files = (0..4).map(|it| file("a", it)).chain((0..4).map(|it| file("b", it)));
    let images = files.flat_map(|file| preparation.apply(&Picture::open(file).unwrap()));
    let images = TensorData::new(images.collect(), [8, 1, 28, 28]);
    let images = Tensor::<Flex, 4>::from_data(images, &device);
    let wanted = encoder.encode(images, BnStatistics::Batch).into_data();
    let pairs = model.examples().values().iter().zip(wanted.iter::<f32>());
    let furthest = pairs.map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f32::max);
    assert!(furthest < 1e-4, "{furthest}");

    #[cfg(feature = "serve")]
    {
        let new = folder.path().join("new.fewshot");
        let served = fewshot(&["serve", text(&new), "--backbone", text(&run), "--port", "0"]);
        assert_eq!(code(&served), Some(2));
        assert!(stderr(&served).contains("by `fewshot adapt`"), "{}", stderr(&served));
    }
}

#[test]
fn a_changed_number_in_the_header_of_a_run_is_a_line() {
    let (folder, _) = adapted_run(&[]);
    let checkpoint = folder.path().join("run/best.ckpt");
    let whole = fs::read(&checkpoint).unwrap();
    let length = u64::from_le_bytes(whole[8..16].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&whole[16..][..length]).unwrap();
    let support = folder.path().join("pictures/test");
    let out = folder.path().join("changed.fewshot");
    for (field, value) in [
        ("channels", json!(1_u64 << 32)),
        ("channels", json!(100_000)),
        ("height", json!(1_u64 << 32)),
        ("height", json!(1_u64 << 63)),
        ("width", json!(0)),
        ("width", json!(-1)),
        ("width", json!(1e300)),
    ] {
        let mut changed = header.clone();
        changed["settings"]["user"]["image"][field] = value.clone();
        let changed = serde_json::to_vec(&changed).unwrap();
        let size = (changed.len() as u64).to_le_bytes();
        let rest = &whole[16 + length..whole.len() - 32];
        let mut bytes = [&whole[..8], &size[..], &changed[..], rest].concat();
        bytes.extend(Sha256::digest(&bytes));
        fs::write(&checkpoint, bytes).unwrap();
        for words in [
            &["adapt", text(&checkpoint), "--support", text(&support), "--out", text(&out)][..],
            &["eval", text(&checkpoint), "--episodes", "2"],
        ] {
            let told = fewshot(words);
            let lines = stderr(&told).lines().count();
            assert_eq!((code(&told), lines), (Some(1), 1), "{field} {value}: {}", stderr(&told));
        }
    }
}
