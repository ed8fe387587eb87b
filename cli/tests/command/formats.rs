//! `--data` with datasets in files.

use std::fs;

use super::{complaint, fewshot, image_folder, json, small, stderr};

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
fn a_list_with_a_row_for_each_annotation_says_how_many_it_passes_over() {
    let images = image_folder(12, 4);
    let list = images.path().join("list.csv");
    let rows = (0..240).map(|row| format!("class{0}/{1}.png,{0}\n", row / 20, row / 5 % 4));
    fs::write(&list, format!("path,label\n{}", rows.collect::<String>())).unwrap();
    let data = format!("csv:{}", list.display());
    let info = fewshot(&["data", "info", &data]);
    let found = String::from_utf8(info.stdout.clone()).unwrap();
    assert!(found.contains("8 classes of 4 images"), "{found}");
    assert!(stderr(&info).contains("rows that name a picture again: 192"), "{}", stderr(&info));
}

#[test]
fn a_list_of_more_images_than_memory_holds_is_one_line_of_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut list = "path,label\n".to_owned();
    for row in 0..20_000 {
        let file = format!("{row}.png");
        fs::write(folder.path().join(&file), &file).unwrap();
        list += &format!("{file},{}\n", row % 10);
    }
    let path = folder.path().join("list.csv");
    fs::write(&path, list).unwrap();
    let (data, run) = (format!("csv:{}", path.display()), folder.path().join("run"));
    let words = ["train", "--method", "protonet", "--data", &data, "--image-size", "4096"];
    let refused = complaint(&fewshot(&[&words[..], &["--out", run.to_str().unwrap()]].concat()));
    let start = "error: 20000 images of 3x4096x4096 need 938 GiB of memory, ";
    assert!(refused.starts_with(start) && refused.contains("a smaller --image-size"), "{refused}");
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
