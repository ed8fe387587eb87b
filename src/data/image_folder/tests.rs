use std::fs;

use image::{DynamicImage, GrayImage, Rgb, RgbImage};

use super::parts::shares;
use super::*;
use crate::data::ClassDataset;
use crate::data::image_files::{image, names, pictures as folder, put};

const RGB: ReadOptions = small(Color::Rgb, OnBroken::Fail);
const GREY: ReadOptions = small(Color::Grey, OnBroken::Fail);
const SKIPPING: ReadOptions = small(Color::Rgb, OnBroken::Skip);

const fn small(color: Color, on_broken: OnBroken) -> ReadOptions {
    let (limits, store) = (PictureLimits { pixels: 1_000_000 }, PixelStore::Memory);
    ReadOptions { height: 28, width: 28, color, on_broken, limits, store }
}

#[test]
fn subfolders_are_classes_in_order_of_name() {
    let root = folder(&[("dog/b.PNG", 3), ("dog/a.bmp", 2), ("cat/1.webp", 1), (".git/x.png", 9)]);
    put(root.path(), "readme.txt", b"not a class");
    put(root.path(), "dog/notes.txt", b"not an image");
    put(root.path(), "dog/.hidden.png", b"not an image");
    let report = image_folder(&root, &ReadOptions { height: 3, width: 2, ..RGB }).unwrap();
    assert_eq!(report.data.image_shape().to_string(), "3x3x2");
    assert_eq!(names(&report.data), ["cat", "dog"]);
    assert_eq!(report.data.examples(1), 2);
    assert!(report.skipped.is_empty());
    for (example, red) in [2, 3].into_iter().enumerate() {
        let planes = [[red; 6], [10; 6], [20; 6]].concat();
        assert_eq!(image(&report.data, 1, example), planes);
    }
}

#[test]
fn every_format_is_read_by_its_content() {
    let root = folder(&[]);
    let names = ["1.png", "2.jpg", "3.jpeg", "4.bmp", "5.gif", "6.webp"];
    for (name, level) in names.into_iter().zip([80, 80, 81, 80, 80, 80]) {
        let path = root.path().join("class");
        fs::create_dir_all(&path).unwrap();
        RgbImage::from_pixel(28, 28, Rgb([level; 3])).save(path.join(name)).unwrap();
    }
    fs::rename(root.path().join("class/4.bmp"), root.path().join("class/7.png")).unwrap();
    let set = image_folder(&root, &GREY).unwrap().data;
    assert_eq!(set.examples(0), 6);
    for example in 0..6 {
        let near = image(&set, 0, example).iter().all(|pixel| pixel.abs_diff(80) <= 2);
        assert!(near, "image {example}");
    }
}

#[test]
fn an_image_of_the_right_size_keeps_its_pixels() {
    let root = folder(&[]);
    let pixels: Vec<u8> = (0..35).map(|value| value * 7).collect();
    fs::create_dir(root.path().join("class")).unwrap();
    let grey = GrayImage::from_raw(7, 5, pixels.clone()).unwrap();
    DynamicImage::from(grey).save(root.path().join("class/1.png")).unwrap();
    let set = image_folder(&root, &ReadOptions { height: 5, width: 7, ..GREY }).unwrap().data;
    assert_eq!(image(&set, 0, 0), pixels);
}

#[test]
fn shrinking_weighs_every_pixel() {
    let root = folder(&[]);
    fs::create_dir(root.path().join("class")).unwrap();
    let stripes = GrayImage::from_fn(64, 64, |x, _| image::Luma([(x % 2) as u8 * 200]));
    stripes.save(root.path().join("class/1.png")).unwrap();
    let set = image_folder(&root, &ReadOptions { height: 8, width: 8, ..GREY }).unwrap().data;
    assert!(image(&set, 0, 0).iter().all(|pixel| pixel.abs_diff(100) <= 5));
}

#[test]
fn a_broken_image_is_an_error_or_is_reported() {
    let root = folder(&[("a/1.png", 1), ("a/3.png", 3), ("b/1.png", 4)]);
    put(root.path(), "a/2.png", b"no image at all");
    let path = root.path().join("a/2.png");

    let text = image_folder(&root, &RGB).unwrap_err().to_string();
    assert!(text.starts_with(&format!("{} is not a readable image: ", path.display())), "{text}");

    let report = image_folder(&root, &SKIPPING).unwrap();
    assert_eq!(report.skipped.iter().map(|broken| &broken.path).collect::<Vec<_>>(), [&path]);
    assert_eq!((report.data.examples(0), report.data.examples(1)), (2, 1));
    let red = [(0, 0), (0, 1), (1, 0)].map(|(class, n)| image(&report.data, class, n)[0]);
    assert_eq!(red, [1, 3, 4]);
}

#[test]
fn all_broken_images_are_in_the_error() {
    let root = folder(&[("a/1.png", 1), ("b/1.png", 4)]);
    for number in 2..14 {
        put(root.path(), &format!("a/{number:02}.png"), format!("no image {number}"));
    }
    let text = image_folder(&root, &RGB).unwrap_err().to_string();
    assert!(text.starts_with("12 of 14 images cannot be read: "), "{text}");
    let reason = "its content is none of png, jpeg, bmp, gif, webp and tiff; ";
    assert_eq!(text.matches(reason).count(), 10, "{text}");
    assert!(text.contains("a/02.png: its content") && text.ends_with("; and 2 more"), "{text}");
}

#[test]
fn files_of_a_class_with_equal_bytes_are_one_image() {
    let root = folder(&[("a/1.png", 1), ("a/2.png", 2), ("b/1.png", 4), ("b/2.png", 2)]);
    for copy in ["a/3.png", "a/4.png", "b/3.png"] {
        fs::copy(root.path().join("a/2.png"), root.path().join(copy)).unwrap();
    }
    let report = image_folder(&root, &RGB).unwrap();
    let pairs = |pairs: &[[&str; 2]]| -> Vec<[PathBuf; 2]> {
        pairs.iter().map(|pair| pair.map(|name| root.path().join(name))).collect()
    };
    assert_eq!((report.data.examples(0), report.data.examples(1)), (2, 2));
    let red = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(class, n)| image(&report.data, class, n)[0]);
    assert_eq!(red, [1, 2, 4, 2]);
    let equal = [["a/2.png", "a/3.png"], ["a/2.png", "a/4.png"], ["b/2.png", "b/3.png"]];
    assert_eq!(report.duplicates, pairs(&equal));
    assert_eq!(report.contradictions, pairs(&[["a/2.png", "b/2.png"]]));
}

#[test]
fn sound_pictures_are_distinct_and_whole() {
    let root = folder(&[("a/1.png", 1), ("a/2.png", 1), ("b/1.png", 4)]);
    put(root.path(), "b/2.png", b"no image at all");
    let classes = picture_files(&root).unwrap();
    let limits = PictureLimits::default();
    let report = sound_pictures(&classes, OnBroken::Fail, limits).unwrap();
    let names = |report: &FolderReport<Vec<(String, Vec<PathBuf>)>>| {
        let files = report.data.iter().flat_map(|(_, files)| files);
        files.map(|file| file.strip_prefix(&root).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(names(&report), paths(&["a/1.png", "b/1.png", "b/2.png"]));
    assert_eq!(report.duplicates, [["a/1.png", "a/2.png"].map(|name| root.path().join(name))]);
    let report = sound_pictures(&classes, OnBroken::Skip, limits).unwrap();
    assert_eq!(names(&report), paths(&["a/1.png", "b/1.png"]));
    assert_eq!(report.skipped[0].path, root.path().join("b/2.png"));
    put(root.path(), "b/1.png", b"none, too");
    let error = sound_pictures(&classes, OnBroken::Skip, limits).unwrap_err().to_string();
    assert_eq!(error, "class b has no image that can be read");
}

#[test]
fn a_class_of_broken_images_only_is_an_error_even_if_they_are_skipped() {
    let root = folder(&[("a/1.png", 1)]);
    put(root.path(), "b/1.png", b"");
    put(root.path(), "b/2.gif", b"GIF89a");
    let text = image_folder(&root, &SKIPPING).unwrap_err().to_string();
    assert_eq!(text, "class b has no image that can be read");
}

#[test]
fn absent_and_empty_folders_are_errors() {
    let root = folder(&[]);
    let absent = image_folder(root.path().join("nowhere"), &RGB).unwrap_err();
    assert!(matches!(&absent, DataError::Read { path, .. } if path.ends_with("nowhere")));
    let empty = image_folder(&root, &RGB).unwrap_err();
    assert!(empty.to_string().ends_with("has no subfolders: each class is a folder of images"));
    put(root.path(), "class/readme.txt", b"no image");
    let without = image_folder(&root, &RGB).unwrap_err();
    assert!(matches!(without, DataError::NoImages { path } if path.ends_with("class")));
    let none = image_folder(&root, &ReadOptions { height: 0, ..RGB }).unwrap_err();
    assert_eq!(none.to_string(), "images of 3x0x28 hold nothing: every number must be at least 1");
}

#[test]
fn folders_named_after_the_splits_are_the_splits() {
    for validation in ["val", "validation"] {
        let third = format!("{validation}/c/1.png");
        let root =
            folder(&[("train/a/1.png", 1), ("train/b/1.png", 2), (&third, 3), ("test/d/1.png", 4)]);
        let splits = image_folder_splits(&root, &RGB, 7).unwrap().data;
        assert_eq!(names(&splits.train), ["a", "b"]);
        assert_eq!(names(&splits.validation), ["c"]);
        assert_eq!(names(&splits.test), ["d"]);
        assert_eq!(image(&splits.test, 0, 0)[0], 4);
    }
}

#[test]
fn a_size_that_no_image_has_is_told_before_a_folder_is_looked_for() {
    let nowhere = std::path::Path::new("nowhere");
    let options = ReadOptions { height: 0, ..RGB };
    let found = [
        image_folder(nowhere, &options).unwrap_err().to_string(),
        image_folder_splits(nowhere, &options, 0).unwrap_err().to_string(),
    ];
    for text in found {
        assert!(text.starts_with("images of 3x0x28 hold nothing"), "{text}");
    }
}

/// A class is known again by the places of its files below the dataset, wherever the dataset lies.
#[test]
fn the_digest_of_a_class_is_that_of_its_files() {
    let files = ["a/1.png", "b/1.png", "c/1.png"];
    let digests = |names: [&str; 3]| {
        let root = folder(&[(names[0], 1), (names[1], 2), (names[2], 3)]);
        let splits = image_folder_splits(&root, &RGB, 0).unwrap().data;
        let all = splits.all().unwrap();
        let digest = |class| (all.class_name(class), all.files_digest(class).unwrap());
        let mut digests: Vec<_> = (0..3).map(digest).collect();
        digests.sort();
        digests.into_iter().map(|(_, digest)| digest).collect::<Vec<_>>()
    };
    let first = digests(files);
    assert!(first[0] != first[1] && first[1] != first[2]);
    assert_eq!(digests(files), first);
    let renamed = digests(["a/1.png", "b/2.png", "c/1.png"]);
    assert_eq!([renamed[0] == first[0], renamed[1] == first[1]], [true, false]);
    assert_eq!(image_folder(folder(&[("a/1.png", 1)]), &RGB).unwrap().data.files_digest(0), None);
}

#[test]
fn a_class_in_two_splits_is_an_error() {
    let root = folder(&[("train/a/1.png", 1), ("val/b/1.png", 2), ("test/a/1.png", 3)]);
    let text = image_folder_splits(&root, &RGB, 0).unwrap_err().to_string();
    assert_eq!(text, "there are two classes a, and splits must have no class in common");
}

#[test]
fn classes_are_shared_out_by_the_seed() {
    let files: Vec<String> = (0..10).map(|class| format!("c{class}/1.png")).collect();
    let files: Vec<(&str, u8)> = files.iter().map(|file| (file.as_str(), 0)).collect();
    let root = folder(&files);
    let order = |seed| {
        let splits = image_folder_splits(&root, &RGB, seed).unwrap().data;
        assert_eq!(splits.classes(), [6, 2, 2]);
        [names(&splits.train), names(&splits.validation), names(&splits.test)].concat()
    };
    let mut one = order(1);
    assert_eq!(one, order(1));
    assert_ne!(one, order(2));
    one.sort();
    assert_eq!(one, names(&image_folder(&root, &RGB).unwrap().data));
}

/// Each class and the paths of its pictures, from the root on.
fn listed(root: &Path, actual: Result<Vec<(String, Vec<PathBuf>)>>) -> Vec<(String, Vec<String>)> {
    let inside = |path: PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    let classes = actual.unwrap().into_iter();
    classes.map(|(name, files)| (name, files.into_iter().map(inside).collect())).collect()
}

fn class(name: &str, files: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), files.iter().map(|file| (*file).to_owned()).collect())
}

#[test]
fn pictures_of_a_class_are_in_its_folder_and_in_those_below() {
    let files = [("owl/2.png", 2), ("owl/1/a.png", 1), ("owl/1/b/c.png", 4), ("wren/x/y.png", 3)];
    let root = folder(&files);
    let expected = [
        class("owl", &["owl/1/a.png", "owl/1/b/c.png", "owl/2.png"]),
        class("wren", &["wren/x/y.png"]),
    ];
    assert_eq!(listed(root.path(), picture_files(&root)), expected);
    assert_eq!(listed(root.path(), pictures_by_class(&root)), expected);
    let read = image_folder(&root, &RGB).unwrap().data;
    assert_eq!(
        (names(&read), read.examples(0), read.examples(1)),
        (vec!["owl".into(), "wren".into()], 3, 1)
    );
}

#[test]
fn a_folder_of_folders_is_classes_and_another_is_a_class() {
    let root = folder(&[("more/owl/1.png", 1), ("more/wren/1.png", 2), ("more/wren/2.png", 3)]);
    let both = [class("owl", &["owl/1.png"]), class("wren", &["wren/1.png", "wren/2.png"])];
    let more = root.path().join("more");
    assert_eq!(listed(&more, pictures_by_class(&more)), both);
    let wren = more.join("wren");
    assert_eq!(listed(&more, pictures_by_class(&wren)), both[1..]);
    // A folder without pictures makes no class of its own beside pictures.
    put(&wren, "notes/seen.txt", b"May");
    assert_eq!(listed(&more, pictures_by_class(&wren)), both[1..]);
}

#[test]
fn a_folder_has_a_name_whatever_path_leads_to_it() {
    let root = folder(&[("more/owl/1.png", 1), ("more/owl/notes/a.txt.png", 1)]);
    let named = |path: &str| class_of(&root.path().join(path)).unwrap().0;
    for path in ["more/owl", "more/owl/", "more/owl/.", "more/owl/notes/.."] {
        assert_eq!(named(path), "owl", "{path}");
    }
    assert_eq!(named("more/owl/.."), "more");
}

#[test]
fn pictures_beside_folders_of_classes_are_an_error_that_names_them() {
    let root = folder(&[("owl/1.png", 1), ("wren/1.png", 1), ("stray.png", 1)]);
    let beside = "stray.png is a picture beside ";
    for text in [picture_files(&root), pictures_by_class(&root)]
        .map(|actual| actual.unwrap_err().to_string())
    {
        assert!(
            text.contains(beside) && text.contains("owl: a folder is one class of pictures"),
            "{text}"
        );
    }
    for stray in ["a.tif", "b.HEIC", "c.webp"] {
        put(root.path(), stray, b"");
    }
    let text = image_folder(&root, &RGB).unwrap_err().to_string();
    assert!(text.contains("c.webp and 1 more are pictures beside "), "{text}");
}

#[test]
fn files_of_systems_are_passed_over_and_pictures_of_other_formats_are_not() {
    let root = folder(&[
        ("owl/1.png", 1),
        ("__MACOSX/owl/1.png", 1),
        ("owl/@eaDir/1.png", 1),
        ("owl/.x/1.png", 1),
    ]);
    for file in
        ["owl/Thumbs.db", "owl/._1.png", "owl/notes.txt", ".DS_Store", "owl/2.avif", "owl/3.heif"]
    {
        put(root.path(), file, b"");
    }
    let expected = [class("owl", &["owl/1.png", "owl/2.avif", "owl/3.heif"])];
    assert_eq!(listed(root.path(), picture_files(&root)), expected);
    let text = image_folder(&root, &RGB).unwrap_err().to_string();
    assert!(text.contains("owl/2.avif"), "{text}");
}

#[test]
fn folders_of_splits_are_not_taken_for_classes() {
    let root = folder(&[("Train/a/1.png", 1), ("test/b/1.png", 1)]);
    let text = picture_files(&root).unwrap_err().to_string();
    assert!(
        text.ends_with("has the folders of splits (Train, test): classes are in each of these"),
        "{text}"
    );
    // Names of classes, where pictures are in them.
    let root = folder(&[("train/1.png", 1), ("test/1.png", 1)]);
    assert_eq!(picture_files(&root).unwrap().len(), 2);
}

#[test]
fn two_folders_of_one_name_are_an_error_that_names_both() {
    let root = folder(&[("caf\u{e9}/1.png", 1), ("cafe\u{301}/1.png", 1), ("bar/1.png", 1)]);
    let text = picture_files(&root).unwrap_err().to_string();
    assert!(text.ends_with("are both called caf\u{e9}, in two spellings of Unicode"), "{text}");
    assert!(text.contains("cafe\u{301} and "), "{text}");
    fs::remove_dir_all(root.path().join("caf\u{e9}")).unwrap();
    let classes: Vec<_> = picture_files(&root).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(classes, ["bar", "caf\u{e9}"]);
}

#[test]
fn a_folder_without_a_plain_name_is_no_class() {
    for name in ["ow\u{200b}l", " owl", "o\u{202e}wl"] {
        let root = folder(&[(&format!("{name}/1.png"), 1), ("b/1.png", 1)]);
        let text = picture_files(&root).unwrap_err().to_string();
        assert!(text.starts_with("no class can be called "), "{text}");
    }
}

#[cfg(unix)]
mod links {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_loops_is_followed_once() {
        let root = folder(&[("owl/1.png", 1), ("wren/1.png", 1)]);
        let expected = [class("owl", &["owl/1.png"]), class("wren", &["wren/1.png"])];
        for (target, link) in
            [("..", "owl/up"), (".", "owl/itself"), (".", "all"), ("../wren", "wren/a")]
        {
            symlink(target, root.path().join(link)).unwrap();
        }
        assert_eq!(listed(root.path(), picture_files(&root)), expected);
        assert_eq!(listed(root.path(), pictures_by_class(root.path().join("owl"))), expected[..1]);
        assert_eq!(pictures_in(&root).unwrap().len(), 2);
    }

    #[test]
    fn a_linked_folder_is_read_where_it_is_linked() {
        let elsewhere = folder(&[("deep/2.png", 1)]);
        let root = folder(&[("owl/1.png", 1)]);
        symlink(elsewhere.path(), root.path().join("owl/more")).unwrap();
        symlink("more", root.path().join("owl/same")).unwrap();
        let expected = [class("owl", &["owl/1.png", "owl/more/deep/2.png"])];
        assert_eq!(listed(root.path(), picture_files(&root)), expected);
    }

    #[test]
    fn a_folder_of_two_classes_is_an_error_that_names_both() {
        let root = folder(&[("owl/1.png", 1), ("wren/1.png", 1)]);
        symlink("owl", root.path().join("twin")).unwrap();
        let text = picture_files(&root).unwrap_err().to_string();
        assert!(text.contains("owl and ") && text.contains("twin lead to one folder"), "{text}");
    }

    #[test]
    fn a_link_to_nothing_is_an_error_that_names_it() {
        for link in ["owl/gone.png", "owl/gone", "gone"] {
            let root = folder(&[("owl/1.png", 1), ("wren/1.png", 1)]);
            symlink("/nowhere", root.path().join(link)).unwrap();
            let text = picture_files(&root).unwrap_err().to_string();
            let named = format!("cannot read {}: ", root.path().join(link).display());
            assert!(text.starts_with(&named), "{text}");
        }
    }
}

#[test]
fn shares_are_those_of_mini_imagenet() {
    assert_eq!(shares(100).unwrap(), [64, 16, 20]);
    assert_eq!(shares(3).unwrap(), [1, 1, 1]);
    let error = shares(2).unwrap_err().to_string();
    assert_eq!(error, "a split into train, validation and test needs 3 classes, there are 2");
}
