//! `data pack`, and runs on packs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::{code, complaint, fewshot, image_folder, json, small, stderr, untimed};

/// A folder of pictures and a pack of them.
struct Packed {
    images: tempfile::TempDir,
    folder: tempfile::TempDir,
}

const SIDE: &str = "16";

impl Packed {
    fn new() -> Self {
        let packed = Self { images: image_folder(12, 8), folder: tempfile::tempdir().unwrap() };
        let output = packed.pack(&[]);
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.starts_with("96 images of 3x16x16 (72.0 KiB), "), "{told}");
        packed
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("images.pack")
    }

    fn pictures(&self) -> String {
        format!("folder:{}", self.images.path().display())
    }

    fn pack(&self, more: &[&str]) -> Output {
        let (pictures, file) = (self.pictures(), self.file());
        let packing =
            ["data", "pack", &pictures, "--image-size", SIDE, "--to", file.to_str().unwrap()];
        fewshot(&[&packing[..], more].concat())
    }

    fn run(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn train(&self, run: &Path, more: &[&str]) -> Output {
        let data = format!("pack:{}", self.file().display());
        let options = ["--data", &data, "--ways", "2", "--queries", "3"];
        small(run, &[&options[..], more].concat())
    }
}

#[test]
fn a_run_on_a_pack_is_the_run_on_its_pictures() {
    let packed = Packed::new();
    let [of_pack, of_pictures, stopped] =
        ["pack", "pictures", "stopped"].map(|name| packed.run(name));
    let report = json(&packed.train(&of_pack, &[]));
    let pictures = packed.pictures();
    let options = ["--data", &pictures, "--image-size", SIDE, "--ways", "2", "--queries", "3"];
    let expected = json(&small(&of_pictures, &options));
    assert_eq!(untimed(&of_pack), untimed(&of_pictures));
    assert_eq!(report["accuracy"], expected["accuracy"]);
    assert_eq!(report["protocol"]["data"], "pack");

    json(&packed.train(&stopped, &["--steps", "6"]));
    json(&packed.train(&stopped, &["--resume"]));
    assert_eq!(untimed(&stopped), untimed(&of_pack));

    // The pictures are needed no longer, and the run on them is tested on the pack.
    fs::remove_dir_all(packed.images.path()).unwrap();
    let data = format!("pack:{}", packed.file().display());
    let test = |run: &Path, more: &[&str]| {
        let test = ["eval", run.to_str().unwrap(), "--episodes", "20", "--json"];
        json(&fewshot(&[&test[..], more].concat()))["accuracy"].clone()
    };
    assert_eq!(test(&of_pack, &[]), expected["accuracy"]);
    assert_eq!(test(&of_pictures, &["--data", &data]), expected["accuracy"]);
    let features = packed.run("features.safetensors");
    let embed = fewshot(&["embed", of_pack.to_str().unwrap(), "--to", features.to_str().unwrap()]);
    assert_eq!(code(&embed), Some(0), "{}", stderr(&embed));
}

#[test]
fn a_pack_tells_what_it_is() {
    let packed = Packed::new();
    let file = packed.file();
    let spec = format!("pack:{}", file.display());
    let info = String::from_utf8(fewshot(&["data", "info", &spec]).stdout).unwrap();
    assert!(info.contains("3x16x16") && info.contains("8 classes of 8 images"), "{info}");
    assert!(info.contains(r#""size":16"#) && info.contains(r#""fit":"stretched""#), "{info}");
    let check = fewshot(&["data", "pack", "--check", file.to_str().unwrap()]);
    assert_eq!(code(&check), Some(0));
    assert!(String::from_utf8(check.stdout).unwrap().ends_with("is whole: 96 images of 3x16x16\n"));

    let mut bytes = fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let wrong = complaint(&fewshot(&["data", "pack", "--check", file.to_str().unwrap()]));
    assert!(
        wrong.contains("images.pack is not a whole pack file") && wrong.contains("checksum"),
        "{wrong}"
    );
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let cut = complaint(&packed.train(&packed.run("run"), &[]));
    assert!(cut.contains("it was cut short"), "{cut}");
    fs::write(&file, "no pack").unwrap();
    let other = complaint(&fewshot(&["data", "info", &spec]));
    assert!(other.contains("images.pack is not a whole pack file"), "{other}");
}

#[test]
fn options_that_a_pack_has_no_use_for_are_refused() {
    let packed = Packed::new();
    let run = packed.run("run");
    for option in
        [&["--image-size", "8"][..], &["--grey"], &["--skip-broken"], &["--max-pixels", "9"]]
    {
        let refused = packed.train(&run, option);
        assert_eq!(code(&refused), Some(2), "{option:?}");
        assert!(stderr(&refused).contains("those of pack are decoded"), "{}", stderr(&refused));
    }
    assert!(!run.exists());
    for line in [
        &["data", "pack"][..],
        &["data", "pack", "glyphs"],
        &["data", "pack", "glyphs", "--check", "x"],
    ] {
        assert_eq!(code(&fewshot(line)), Some(2), "{line:?}");
    }
    json(&packed.train(&run, &["--steps", "2"]));
    // Another size is another run.
    let repacked = packed.pack(&["--image-size", "20"]);
    assert_eq!(code(&repacked), Some(0), "{}", stderr(&repacked));
    let resumed = complaint(&packed.train(&run, &["--resume"]));
    assert!(resumed.contains("3x16x16") && resumed.contains("3x20x20"), "{resumed}");
    let tested = complaint(&fewshot(&["eval", run.to_str().unwrap(), "--episodes", "5"]));
    assert!(tested.contains("the checkpoint takes images of 3x16x16"), "{tested}");
}

#[test]
fn a_failure_leaves_the_pack_that_was_there() {
    let packed = Packed::new();
    let before = fs::read(packed.file()).unwrap();
    fs::write(packed.images.path().join("class3/0.png"), "no picture").unwrap();
    let broken = complaint(&packed.pack(&[]));
    assert!(broken.contains("class3/0.png"), "{broken}");
    assert_eq!(fs::read(packed.file()).unwrap(), before);
    assert_eq!(fs::read_dir(packed.folder.path()).unwrap().count(), 1);
    let nowhere = fewshot(&["data", "pack", "glyphs", "--to", "no/folder/x.pack"]);
    assert!(complaint(&nowhere).contains("cannot write no/folder/x.pack"));
}
