//! How commands read files of pictures.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use super::pictures::{BLUE, GREEN, RED, draw, text, weights};
use super::{code, fewshot, json, stderr};

/// Red and green pictures, of which one is a cut JPEG, one is no picture and one is there twice; and the network.
fn damaged() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    draw(&root.join("support/red"), RED, 3);
    draw(&root.join("support/green"), GREEN, 4);
    draw(&root.join("support/blue"), BLUE, 3);
    let whole = root.join("whole.jpg");
    image::open(root.join("support/red/0.png")).unwrap().save(&whole).unwrap();
    let jpeg = fs::read(whole).unwrap();
    fs::write(root.join("support/red/cut.jpg"), &jpeg[..jpeg.len() / 2]).unwrap();
    fs::write(root.join("support/green/none.png"), "no picture").unwrap();
    let copy = |from: &str, to: &str| fs::copy(root.join(from), root.join(to)).unwrap();
    copy("support/green/1.png", "support/green/copy.png");
    let backbone = format!("efficientnet-lite0:{}", text(&weights(root)));
    (folder, backbone)
}

fn lines_of(output: &std::process::Output) -> String {
    stderr(output).replace('\\', "/")
}

#[test]
fn all_broken_pictures_are_named_or_left_out() {
    let (folder, backbone) = damaged();
    let root = folder.path();
    let (support, model) = (root.join("support"), root.join("model.fewshot"));
    let (features, data) = (root.join("all.safetensors"), format!("folder:{}", text(&support)));
    let adapt = ["adapt", "--backbone", &backbone, "--support", text(&support), "--out"];
    let adapt = [&adapt[..], &[text(&model), "--json"]].concat();
    let embed = ["embed", "--backbone", &backbone, "--pictures", text(&support), "--to"];
    let embed = [&embed[..], &[text(&features)]].concat();
    for command in [&adapt, &embed, &vec!["data", "info", &data]] {
        let output = fewshot(command);
        let said = lines_of(&output);
        assert_eq!(code(&output), Some(1), "{said}");
        let error = said.lines().last().unwrap();
        // The copy is not read.
        assert!(error.starts_with("error: 2 of 12 images cannot be read: "), "{said}");
        let cut = "red/cut.jpg: the file is cut: its end-of-image marker is missing";
        let none = "green/none.png: its content is none of png, jpeg, bmp, gif, webp and tiff";
        assert!(error.contains(cut) && error.contains(none), "{said}");
        let output = fewshot(&[&command[..], &["--skip-broken"]].concat());
        let said = lines_of(&output);
        assert_eq!(code(&output), Some(0), "{said}");
        assert!(said.contains("broken images left out: 2") && said.contains(cut), "{said}");
        assert!(said.contains("images left out that equal another of their class: 1"), "{said}");
    }
    let report = json(&fewshot(&[&adapt[..], &["--skip-broken"]].concat()));
    assert_eq!((&report["pictures"], &report["shots"]), (&json!(10), &json!([3, 4, 3])));
    predictions_go_on(&support, &model);
    additions_are_checked(root, &model);
}

fn predictions_go_on(support: &Path, model: &Path) {
    let predict = ["predict", text(model), text(support)];
    let output = fewshot(&predict);
    assert_eq!(code(&output), Some(1));
    assert!(lines_of(&output).ends_with("error: 2 of 13 pictures not read\n"));
    let output = fewshot(&[&predict[..], &["--skip-broken"]].concat());
    let said = lines_of(&output);
    assert_eq!(code(&output), Some(0), "{said}");
    assert!(said.ends_with("broken pictures left out: 2\n"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 11);
    let absent = fewshot(&["predict", text(model), "nowhere.png", "--skip-broken"]);
    assert_eq!(code(&absent), Some(1));
}

fn additions_are_checked(root: &Path, model: &Path) {
    let grey = root.join("grey");
    draw(&grey, [90; 3], 2);
    fs::copy(grey.join("0.png"), grey.join("9.png")).unwrap();
    fs::write(grey.join("none.png"), "no picture").unwrap();
    let add = ["adapt", text(model), "--add", text(&grey), "--json"];
    let output = fewshot(&add);
    assert_eq!(code(&output), Some(1));
    assert!(lines_of(&output).contains("grey/none.png is not a readable image"));
    let report = json(&fewshot(&[&add[..], &["--skip-broken"]].concat()));
    assert_eq!(report["shots"], json!([3, 4, 2, 3]));
}

#[test]
fn the_limit_of_pixels_is_an_option() {
    let (folder, _) = damaged();
    let data = format!("folder:{}", text(&folder.path().join("support")));
    let info = ["data", "info", &data, "--skip-broken"];
    let output = fewshot(&[&info[..], &["--max-pixels", "1999"]].concat());
    let said = lines_of(&output);
    assert_eq!(code(&output), Some(1), "{said}");
    assert!(said.contains(" has no image that can be read"), "{said}");
    assert_eq!(code(&fewshot(&[&info[..], &["--max-pixels", "2100"]].concat())), Some(0));
    assert_eq!(code(&fewshot(&[&info[..], &["--max-pixels", "0"]].concat())), Some(2));
    let of_glyphs = fewshot(&["data", "info", "glyphs", "--max-pixels", "9"]);
    assert_eq!(code(&of_glyphs), Some(2));
    assert!(stderr(&of_glyphs).contains("not for glyphs"));
}
