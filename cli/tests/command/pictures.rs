//! `fewshot adapt` and `fewshot predict`.

use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::Flex;
use burn::tensor::backend::Backend;
use fewshot::adapted::AdaptedModel;
use fewshot::data::{Features, Picture};
use fewshot::models::{EfficientNetLiteConfig, Pretrained};
use image::{Rgb, RgbImage};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{code, fewshot, json, stderr};

/// Weights of a network that was drawn: colours it tells apart all the same.
pub fn weights(folder: &Path) -> PathBuf {
    let path = folder.join("lite0.safetensors");
    let device = Default::default();
    Flex::seed(&device, 1);
    let network = EfficientNetLiteConfig::new().init::<Flex>(&device);
    network.save_weights(&path).unwrap();
    path
}

/// Pictures of about one colour, no two of a size.
pub fn draw(folder: &Path, colour: [u8; 3], count: u32) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..count {
        let speck = |x: u32, y: u32| (x * 7 + y * 13 + number * 29) % 31;
        let pixel = |x, y| Rgb(colour.map(|value| value.saturating_add(speck(x, y) as u8)));
        let image = RgbImage::from_fn(40 + number, 50 - number, pixel);
        image.save(folder.join(format!("{number}.png"))).unwrap();
    }
}

/// A file whose header tells of more pixels than are taken.
pub fn huge() -> Vec<u8> {
    let mut file = Vec::new();
    let mut header = png::Encoder::new(&mut file, 40_000, 40_000).write_header().unwrap();
    header.write_chunk(png::chunk::IDAT, &[0]).unwrap();
    drop(header);
    file
}

pub const RED: [u8; 3] = [200, 20, 20];
pub const GREEN: [u8; 3] = [20, 200, 20];
pub const BLUE: [u8; 3] = [20, 20, 200];

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A model of red and green pictures, in a folder with the weights and the pictures.
pub fn adapted() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    draw(&root.join("support/red"), RED, 3);
    draw(&root.join("support/green"), GREEN, 4);
    let backbone = format!("efficientnet-lite0:{}", text(&weights(root)));
    let (support, out) = (root.join("support"), root.join("colours.fewshot"));
    let (support, to) = (text(&support), text(&out));
    let report = json(&fewshot(&[
        "adapt",
        "--backbone",
        &backbone,
        "--support",
        support,
        "--out",
        to,
        "--json",
    ]));
    assert_eq!(report["classes"], json!(["green", "red"]));
    assert_eq!((&report["pictures"], &report["shots"]), (&json!(7), &json!([4, 3])));
    assert_eq!((&report["left_out"], &report["left_out_folds"]), (&json!(7), &json!(7)));
    assert_eq!(report["left_out_accuracy"], json!(100.0));
    (folder, out)
}

fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn pictures_are_classified_as_by_the_library() {
    let (folder, model) = adapted();
    for ending in ["confusion.svg", "map.svg"] {
        let drawing = fs::read_to_string(model.with_extension(ending)).unwrap();
        assert!(drawing.starts_with("<svg") && drawing.contains("green"), "{ending}");
    }
    let photos = folder.path().join("photos");
    draw(&photos.join("a"), GREEN, 2);
    draw(&photos.join("b"), RED, 2);
    let found = fewshot(&["predict", text(&model), text(&photos), "--top", "2", "--json"]);
    assert_eq!(code(&found), Some(0), "{}", stderr(&found));
    let found = lines(&found);
    let classes: Vec<_> = found.iter().map(|line| line["class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["green", "green", "red", "red"]);

    let library = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    for line in &found {
        let picture = Picture::open(line["file"].as_str().unwrap()).unwrap();
        let prediction = &library.predict(&[picture]).unwrap()[0];
        assert_eq!(line["class"], prediction.class());
        let probability = line["classes"][0]["probability"].as_f64().unwrap();
        assert!((probability - prediction.probability()).abs() < 1e-3);
        let total: f64 = prediction.classes.iter().map(|(_, p)| p).sum();
        assert!((total - 1.0).abs() < 1e-9);
    }
    let plain = fewshot(&["predict", text(&model), text(&photos.join("a/0.png"))]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("0.png: green 0."), "{plain}");
}

#[test]
fn classes_come_and_go_and_others_stay() {
    let (folder, model) = adapted();
    let open = || AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    let before = open();
    let blue = folder.path().join("blue");
    draw(&blue, BLUE, 2);
    let added = fewshot(&["adapt", text(&model), "--add", text(&blue)]);
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
    let more = open();
    assert_eq!(more.class_names(), ["blue", "green", "red"]);
    assert_eq!(more.examples().row(2), before.examples().row(0));
    let blue = Picture::open(blue.join("1.png")).unwrap();
    assert_eq!(more.predict(&[blue]).unwrap()[0].class(), "blue");

    let removed = fewshot(&["adapt", text(&model), "--remove", "blue", "--json"]);
    assert_eq!(json(&removed)["classes"], json!(["green", "red"]));
    assert_eq!(open().examples().values(), before.examples().values());
    let none = fewshot(&["adapt", text(&model), "--remove", "blau"]);
    assert_eq!(code(&none), Some(2));
    assert!(stderr(&none).contains("there is no class \"blau\": there are green, red"));
    let last = fewshot(&["adapt", text(&model), "--remove", "green"]);
    assert_eq!(code(&last), Some(1));
    assert!(stderr(&last).contains("at least two"), "{}", stderr(&last));
    assert_eq!(open().class_names(), ["green", "red"], "the file is as it was");
}

/// Whether folders are given as classes of a new model or are added to one, they are the same classes.
#[test]
fn a_folder_of_folders_adds_each_as_a_class() {
    let (folder, model) = adapted();
    let root = folder.path();
    let more = root.join("more");
    draw(&more.join("blue"), BLUE, 2);
    draw(&more.join("grey/light/inside"), [160; 3], 2);
    draw(&more.join("grey/dark"), [90; 3], 1);
    let counted = |model: &Path| {
        let model = AdaptedModel::<Flex>::open(model, &Default::default()).unwrap();
        let examples = model.examples();
        let names = model.class_names().into_iter().enumerate();
        names.map(|(class, name)| (name, examples.examples(class))).collect::<Vec<_>>()
    };
    let expected = |counts: &[(&str, usize)]| -> Vec<(String, usize)> {
        counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    };
    let added = root.join("added.fewshot");
    let add = |words: &[&str], place: &Path| {
        let command = &mut std::process::Command::new(env!("CARGO_BIN_EXE_fewshot"));
        let command =
            command.current_dir(place).args(["adapt", text(&model), "--out", text(&added)]);
        command.args(words).output().unwrap()
    };
    let all = expected(&[("blue", 2), ("green", 4), ("grey", 3), ("red", 3)]);
    // A folder that is left again by `..`, and the one that the command runs in.
    for (words, place) in [
        (["--add", text(&more)], root),
        (["--add", "more/grey/.."], root),
        (["--add", "."], &*more),
    ] {
        let output = add(&words, place);
        assert_eq!(code(&output), Some(0), "{words:?}: {}", stderr(&output));
        assert_eq!(counted(&added), all, "{words:?}");
    }
    let single = [("--add", ".", more.join("blue")), ("--add", "../..", more.join("blue/x/y"))];
    for (option, path, place) in single {
        fs::create_dir_all(&place).unwrap();
        let output = add(&[option, path], &place);
        assert_eq!(code(&output), Some(0), "{path}: {}", stderr(&output));
        let one = expected(&[("blue", 2), ("green", 4), ("red", 3)]);
        assert_eq!(counted(&added), one, "{path}");
    }
    fs::remove_dir_all(more.join("blue/x")).unwrap();

    let backbone = format!("efficientnet-lite0:{}", text(&root.join("lite0.safetensors")));
    let new = root.join("new.fewshot");
    let adapt = ["adapt", "--backbone", &backbone, "--support", text(&more), "--out", text(&new)];
    let output = fewshot(&adapt);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(counted(&new), expected(&[("blue", 2), ("grey", 3)]));

    let before = fs::read(&model).unwrap();
    fs::remove_file(&new).unwrap();
    draw(&more, RED, 1);
    for output in [fewshot(&adapt), add(&["--add", text(&more)], root)] {
        let why = stderr(&output);
        assert_eq!((code(&output), why.lines().count()), (Some(1), 1), "{why}");
        assert!(why.contains("0.png is a picture beside ") && why.contains("more/blue"), "{why}");
    }
    assert!(!new.exists() && fs::read(&model).unwrap() == before);
    let unnamed = add(&["--add", "/"], root);
    assert_eq!(code(&unnamed), Some(1), "{}", stderr(&unnamed));
}

#[test]
fn small_pictures_of_examples_stay_with_them() {
    let (folder, model) = adapted();
    let open = || AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    // The mean of the middle of each, which is about its colour.
    let colours = || -> Vec<Option<usize>> {
        let colour = |file: &fewshot::adapted::Thumbnail| {
            let shown = image::load_from_memory(file).unwrap().into_rgb8();
            assert_eq!(shown.dimensions(), (96, 96));
            let Rgb(pixel) = *shown.get_pixel(48, 48);
            (0..3).max_by_key(|&channel| pixel[channel]).unwrap()
        };
        open().thumbnails().iter().map(|file| file.as_ref().map(colour)).collect()
    };
    let of = |counts: [(usize, usize); 3]| -> Vec<Option<usize>> {
        counts.iter().flat_map(|&(colour, count)| vec![Some(colour); count]).collect()
    };
    assert_eq!(colours(), of([(1, 4), (0, 3), (0, 0)]));
    draw(&folder.path().join("blue"), BLUE, 2);
    draw(&folder.path().join("green"), [20, 201, 20], 1);
    let (blue, green) = (folder.path().join("blue"), folder.path().join("green"));
    let both = ["adapt", text(&model), "--add", text(&blue), "--add", text(&green)];
    assert_eq!(code(&fewshot(&both)), Some(0));
    assert_eq!(colours(), of([(2, 2), (1, 5), (0, 3)]));
    assert_eq!(code(&fewshot(&["adapt", text(&model), "--remove", "green"])), Some(0));
    assert_eq!(colours(), of([(2, 2), (0, 3), (0, 0)]));

    // Versions that know of none read tensors and pass other metadata over.
    let as_features = folder.path().join("colours.safetensors");
    fs::copy(&model, &as_features).unwrap();
    let metadata = Features::open(&as_features).unwrap().metadata().clone();
    assert!(metadata["fewshot_adapted"].starts_with("{\"format\":1,"), "{metadata:?}");
    assert!(metadata.contains_key("fewshot_thumbnails"));

    let none = ["adapt", text(&model), "--add", text(&green), "--no-thumbnails"];
    assert_eq!(code(&fewshot(&none)), Some(0));
    assert_eq!(colours(), [None; 6]);
    draw(&green, [20, 202, 20], 1);
    assert_eq!(code(&fewshot(&["adapt", text(&model), "--add", text(&green)])), Some(0));
    assert_eq!(colours(), [None; 7]);
    open().write(&model).unwrap();
    assert_eq!(colours(), [None; 7]);
}

#[test]
fn what_is_near_no_class_is_rejected_where_asked() {
    let (folder, model) = adapted();
    let photos = folder.path().join("photos");
    draw(&photos, GREEN, 1);
    let predict = |least: &str| {
        let found =
            fewshot(&["predict", text(&model), text(&photos), "--unknown", least, "--json"]);
        lines(&found).remove(0)
    };
    let sure = predict("0.0");
    let known = sure["known"].as_f64().unwrap();
    assert!(known > 0.5 && sure["class"] == "green", "{sure}");
    assert_eq!(predict("1.0")["class"], Value::Null);
    let others = folder.path().join("others");
    for (name, colour) in [("blue", BLUE), ("grey", [110; 3]), ("red", RED)] {
        draw(&others.join(name), colour, 1);
    }
    let found = fewshot(&["predict", text(&model), text(&others), "--unknown", "0.5", "--json"]);
    let classes: Vec<_> = lines(&found).iter().map(|line| line["class"].clone()).collect();
    assert_eq!(json!(classes), json!([null, null, "red"]), "{:?}", lines(&found));

    // Of one picture a class nothing can be left out.
    let single = folder.path().join("single");
    draw(&single.join("red"), RED, 1);
    draw(&single.join("green"), GREEN, 1);
    let backbone = format!("efficientnet-lite0:{}", text(&folder.path().join("lite0.safetensors")));
    let out = folder.path().join("single.fewshot");
    let words = ["adapt", "--backbone", &backbone, "--support", text(&single), "--out", text(&out)];
    let report = json(&fewshot(&[&words[..], &["--json"]].concat()));
    assert_eq!(report["left_out"], Value::Null);
    let refused = fewshot(&["predict", text(&out), text(&photos), "--unknown", "0.5"]);
    assert_eq!(code(&refused), Some(2));
    assert!(stderr(&refused).contains("two pictures of a class"), "{}", stderr(&refused));
    assert_eq!(code(&fewshot(&["predict", text(&out), text(&photos)])), Some(0));
}

#[test]
fn a_broken_picture_does_not_hide_the_others() {
    let (folder, model) = adapted();
    let photos = folder.path().join("photos");
    draw(&photos, RED, 2);
    for (content, why) in
        [(b"not a picture".to_vec(), "none of png"), (huge(), "the limit is 100000000")]
    {
        fs::write(photos.join("00.png"), content).unwrap();
        let found = fewshot(&["predict", text(&model), text(&photos), "--json"]);
        assert_eq!(code(&found), Some(1));
        assert_eq!(lines(&found).len(), 2);
        let complaints = stderr(&found);
        assert!(complaints.contains("00.png") && complaints.contains(why), "{complaints}");
        assert!(complaints.contains("1 of 3 pictures"), "{complaints}");
    }
}

#[test]
fn embeddings_of_pictures_are_a_file_of_features() {
    let (folder, model) = adapted();
    let backbone = format!("efficientnet-lite0:{}", text(&folder.path().join("lite0.safetensors")));
    let (support, to) = (folder.path().join("support"), folder.path().join("colours.safetensors"));
    let words = ["embed", "--backbone", &backbone, "--pictures", text(&support), "--to", text(&to)];
    let embedded = fewshot(&words);
    assert_eq!(code(&embedded), Some(0), "{}", stderr(&embedded));
    let features = Features::open(&to).unwrap();
    let model = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    assert_eq!(features.values(), model.examples().values());
    assert_eq!(features.metadata()["backbone"], "efficientnet-lite0");
    let (ways, found) = (["--ways", "2", "--queries", "1"], ["--method", "prototypes", "--json"]);
    let eval = ["eval", "--features", text(&to), "--shots", "1", "--episodes", "50"];
    let found = json(&fewshot(&[&eval[..], &ways, &found].concat()));
    assert_eq!(found["results"][0]["accuracy"], json!(100.0));
}

#[test]
fn bad_input_is_one_clear_error() {
    let (folder, model) = adapted();
    let root = folder.path();
    let backbone = format!("efficientnet-lite0:{}", text(&root.join("lite0.safetensors")));
    let adapt = |backbone: &str, support: &Path, more: &[&str]| {
        let out = root.join("other.fewshot");
        let words =
            ["adapt", "--backbone", backbone, "--support", text(support), "--out", text(&out)];
        let output = fewshot(&[&words, more].concat());
        assert!(!out.exists());
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        (code(&output).unwrap(), stderr(&output))
    };
    let support = root.join("support");
    let (status, text_of) = adapt("dino:lite0.safetensors", &support, &[]);
    assert!(status == 2 && text_of.contains("there are dinov2-s"), "{text_of}");
    let (status, text_of) = adapt("lite0.safetensors", &support, &[]);
    assert!(status == 2 && text_of.contains("there are dinov2-s"), "{text_of}");
    let (status, text_of) =
        adapt(&backbone.replace("efficientnet-lite0:", "resnet18:"), &support, &[]);
    let first = "weights of another network: conv1.weight is missing";
    assert!(status == 1 && text_of.contains(first), "{text_of}");
    let (status, text_of) = adapt(&backbone, &support, &["--method", "leo"]);
    assert!(status == 2 && text_of.contains("simpleshot"), "{text_of}");
    let (status, text_of) = adapt(&backbone, &support.join("red"), &[]);
    assert!(status == 1 && text_of.contains("no subfolders"), "{text_of}");
    let one = root.join("one");
    draw(&one.join("red"), RED, 2);
    let (status, text_of) = adapt(&backbone, &one, &[]);
    assert!(status == 1 && text_of.contains("at least two"), "{text_of}");
    fs::create_dir(one.join("empty")).unwrap();
    let (status, text_of) = adapt(&backbone, &one, &[]);
    assert!(status == 1 && text_of.contains("empty has no png"), "{text_of}");
    fs::write(one.join("empty/broken.jpg"), b"nothing").unwrap();
    let (status, text_of) = adapt(&backbone, &one, &[]);
    assert!(status == 1 && text_of.contains("broken.jpg"), "{text_of}");
    fs::write(one.join("empty/broken.jpg"), huge()).unwrap();
    let (status, text_of) = adapt(&backbone, &one, &[]);
    assert!(status == 1 && text_of.contains("the limit is 100000000"), "{text_of}");

    let predict = |model: &Path| {
        let output = fewshot(&["predict", text(model), text(&support.join("red/0.png"))]);
        assert_eq!(code(&output), Some(1));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        stderr(&output)
    };
    let bytes = fs::read(&model).unwrap();
    let later = root.join("later.fewshot");
    let content = String::from_utf8_lossy(&bytes).replacen("format\\\":1", "format\\\":9", 1);
    // Only the header is text: what follows it does not matter to the version.
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let changed = &content.as_bytes()[content.find('{').unwrap()..][..header - 8];
    fs::write(&later, [&bytes[..8], changed, &bytes[header..]].concat()).unwrap();
    assert!(predict(&later).contains("later version"), "{}", predict(&later));
    assert!(predict(&root.join("lite0.safetensors")).contains("is no adapted model"));
    assert!(predict(&support.join("red/0.png")).contains("is no adapted model"));

    fs::rename(root.join("lite0.safetensors"), root.join("moved.safetensors")).unwrap();
    assert!(predict(&model).contains("say where they are"), "{}", predict(&model));
    let moved = root.join("moved.safetensors");
    let picture = support.join("red/0.png");
    let found = fewshot(&["predict", text(&model), text(&picture), "--weights", text(&moved)]);
    assert!(String::from_utf8(found.stdout).unwrap().contains("red"));
}

#[test]
fn equal_files_count_once_and_what_is_there_is_not_added_again() {
    let folder = TempDir::new().unwrap();
    let (root, support) = (folder.path(), folder.path().join("support"));
    draw(&support.join("red"), RED, 3);
    draw(&support.join("green"), GREEN, 4);
    fs::copy(support.join("red/0.png"), support.join("red/again.png")).unwrap();
    fs::copy(support.join("red/1.png"), support.join("green/other.png")).unwrap();
    let backbone = format!("efficientnet-lite0:{}", text(&weights(root)));
    let model = root.join("colours.fewshot");
    let words = ["--backbone", &backbone, "--support", text(&support), "--out", text(&model)];
    let made = fewshot(&[&["adapt", "--json"], &words[..]].concat());
    let told = stderr(&made);
    assert!(told.contains("images left out that equal another of their class: 1 ("), "{told}");
    let pair = told.lines().find(|line| line.starts_with("warning: ")).unwrap();
    for part in ["green/other.png", "red/1.png", "equal one of another class: 1"] {
        assert!(pair.contains(part), "{pair}");
    }
    assert_eq!(json(&made)["shots"], json!([5, 3]));

    let open = |path: &Path| AdaptedModel::<Flex>::open(path, &Default::default()).unwrap();
    let before = open(&model);
    let red = support.join("red");
    let added = fewshot(&["adapt", text(&model), "--add", text(&red)]);
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
    assert!(stderr(&added).contains("3 of 3 pictures of red are there already"));
    assert_eq!(open(&model).examples(), before.examples());
    assert_eq!(open(&model).cross_validation(), before.cross_validation());
    draw(&red, RED, 5);
    let added = fewshot(&["adapt", text(&model), "--add", text(&red)]);
    assert!(stderr(&added).contains("3 of 5 pictures of red are there already"));
    assert_eq!(open(&model).examples().rows(), 10);

    // A file without digests opens, and gets those of what is added.
    let bare = root.join("bare.fewshot");
    let without = open(&model).with_digests(vec![None; 10]);
    without.write(&bare).unwrap();
    assert_eq!(code(&fewshot(&["adapt", text(&bare), "--add", text(&red)])), Some(0));
    assert_eq!(open(&bare).examples().rows(), 15);
    assert_eq!(code(&fewshot(&["adapt", text(&bare), "--add", text(&red)])), Some(0));
    assert_eq!(open(&bare).examples().rows(), 15);
}

#[test]
fn equal_embeddings_of_all_pictures_are_an_error() {
    let folder = TempDir::new().unwrap();
    let (root, support) = (folder.path(), folder.path().join("support"));
    // One picture as files of several contents.
    for (class, endings) in [("a", ["png", "bmp"]), ("b", ["png", "webp"])] {
        fs::create_dir_all(support.join(class)).unwrap();
        for (number, ending) in endings.into_iter().enumerate() {
            let path = support.join(format!("{class}/{number}.{ending}"));
            RgbImage::from_pixel(40, 40, Rgb([9, 90, 200])).save(path).unwrap();
        }
    }
    let backbone = format!("efficientnet-lite0:{}", text(&weights(root)));
    let model = root.join("equal.fewshot");
    let words = ["--backbone", &backbone, "--support", text(&support), "--out", text(&model)];
    let made = fewshot(&[&["adapt"], &words[..]].concat());
    assert_eq!(code(&made), Some(1));
    assert!(stderr(&made).contains("error: all embeddings are equal"), "{}", stderr(&made));
    assert!(!model.exists());
}

#[test]
fn a_changed_preparation_of_pictures_is_refused() {
    let (folder, model) = adapted();
    let as_features = folder.path().join("changed.safetensors");
    fs::copy(&model, &as_features).unwrap();
    let features = Features::open(&as_features).unwrap();
    let header: Value = serde_json::from_str(&features.metadata()["fewshot_adapted"]).unwrap();
    let changed = folder.path().join("changed.fewshot");
    for (field, value) in [
        ("crop", json!(1_u64 << 32)),
        ("crop", json!(100)),
        ("crop", json!(0)),
        ("resize", json!(1_u64 << 63)),
        ("deviation", json!([0.0, 0.5, 0.5])),
        ("mean", json!([1e300, 0.5, 0.5])),
        ("mean", json!([null, 0.5, 0.5])),
    ] {
        let mut header = header.clone();
        header["backbone"]["preprocessing"][field] = value.clone();
        let features = features.clone().with_metadata("fewshot_adapted", header.to_string());
        features.write(&as_features).unwrap();
        fs::rename(&as_features, &changed).unwrap();
        let refused = AdaptedModel::<Flex>::open(&changed, &Default::default());
        assert!(refused.is_err(), "{field} {value}");
    }
}
