//! `--data` with datasets in files.

use std::fs;

use super::{complaint, fewshot, image_folder, json, small};

#[test]
fn every_format_is_in_the_help() {
    for command in [&["train"][..], &["eval"], &["embed"], &["data", "info"]] {
        let text = String::from_utf8(fewshot(&[command, &["--help"]].concat()).stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for spec in ["folder:DIR", "csv:FILE", "mini-imagenet:DIR", "cub:DIR", "fonts:DIR"] {
            assert!(text.contains(spec), "{command:?}: {spec}");
        }
    }
}

#[test]
fn a_list_trains_a_learner_that_another_dataset_tests() {
    let images = image_folder(12, 8);
    let list = images.path().join("list.csv");
    let rows = (0..96).map(|row| format!("class{0}/{1}.png,{0}\n", row / 8, row % 8));
    fs::write(&list, format!("path,label\n{}", rows.collect::<String>())).unwrap();
    let data = format!("csv:{}", list.display());
    let info = String::from_utf8(fewshot(&["data", "info", &data]).stdout).unwrap();
    assert!(info.contains("3x84x84") && info.contains("8 classes of 8 images"), "{info}");

    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let size = ["--image-size", "16", "--grey", "--ways", "2", "--queries", "3", "--steps", "2"];
    let report = json(&small(&run, &[&["--data", &data], &size[..]].concat()));
    assert_eq!(report["protocol"]["data"], "csv");
    assert_eq!(report["protocol"]["split"], "classes");

    fs::create_dir(images.path().join("images")).unwrap();
    for class in 0..12 {
        let class = format!("class{class}");
        fs::rename(images.path().join(&class), images.path().join("images").join(&class)).unwrap();
    }
    let birds = format!("cub:{}", images.path().display());
    let run = run.to_str().unwrap();
    let report = json(&fewshot(&["eval", run, "--data", &birds, "--episodes", "5", "--json"]));
    assert_eq!(report["protocol"]["data"], "cub");
    let gone = complaint(&fewshot(&["eval", run, "--episodes", "5"]));
    assert!(gone.contains("list.csv: line 2: there is no image"), "{gone}");
}

#[test]
fn what_is_no_dataset_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let wanted = [
        ("mini-imagenet", "no train.csv and no mini-imagenet-cache-train.pkl"),
        ("tiered-imagenet", "no train_images_png.pkl"),
        ("cifar-fs", "no splits/bertinetto/train.txt"),
        ("fc100", "no FC100_train.pickle"),
        ("cub", "images"),
        ("meta-album", "labels.csv"),
        ("csv", "cannot read"),
        ("fonts", "no ttf or otf file"),
    ];
    for (name, text) in wanted {
        let data = format!("{name}:{}", empty.path().display());
        let found = complaint(&fewshot(&["data", "info", &data]));
        assert!(found.contains(text), "{name}: {found}");
    }
}
