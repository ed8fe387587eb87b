use std::fs;

use serde_json::json;

use super::*;
use crate::data::image_files::{image, names, pictures, put};
use crate::data::{
    ClassDataset, ImageSet, OnBroken, PixelStore, QuarterTurn, ReadOptions, Rotations, Scaling,
    image_folder_splits,
};

/// Classes `a` to `d` of 1 to 4 images of 3 channels, no two of 4 x 4 bytes alike.
fn splits() -> Splits {
    let shape = ImageShape::new(3, 4, 4);
    let pixels: Vec<u8> = (0..10 * shape.values()).map(|value| (value * 7 % 251) as u8).collect();
    let classes =
        ["a", "b", "c", "d"].into_iter().zip(1..).map(|(name, images)| (name.into(), images));
    let set = ImageSet::new(shape, pixels, classes).unwrap();
    Splits { train: set.select(&[3, 0]), validation: set.select(&[1]), test: set.select(&[2]) }
}

fn write(splits: &Splits, path: &Path) {
    let writer = PackWriter::create(path).unwrap();
    writer.finish(splits, Shades::Kept, json!({ "data": "test" })).unwrap();
}

fn sets(splits: &Splits) -> [&ImageSet; 3] {
    [&splits.train, &splits.validation, &splits.test]
}

/// Fails where two sets differ in anything that an episode shows.
fn assert_alike(one: &ImageSet, other: &ImageSet) {
    assert_eq!(names(one), names(other));
    assert_eq!((one.scaling(), one.draws_turns()), (other.scaling(), other.draws_turns()));
    for class in 0..one.classes() {
        assert_eq!(one.examples(class), other.examples(class));
        for example in 0..one.examples(class) {
            assert_eq!(image(one, class, example), image(other, class, example));
            let turned = [one, other].map(|set| {
                let mut out = vec![0; set.image_shape().values()];
                set.write_image(class, example, QuarterTurn::R90, &mut out).unwrap();
                out
            });
            assert_eq!(turned[0], turned[1]);
        }
    }
}

#[test]
fn a_pack_shows_what_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pack");
    let scaling = Scaling { mean: vec![0.1, 0.2, 0.3], std: vec![1.0, 2.0, 3.0] };
    let turned = splits().with_rotations(Rotations::AsClasses).unwrap();
    let drawn = splits().with_rotations(Rotations::PerClassAndEpisode).unwrap();
    for splits in [splits(), turned, drawn, splits().with_scaling(&scaling).unwrap()] {
        write(&splits, &path);
        let pack = Pack::open(&path).unwrap();
        pack.check().unwrap();
        assert_eq!((pack.images(), pack.image_shape()), (10, ImageShape::new(3, 4, 4)));
        assert_eq!((pack.shades(), pack.source()), (Shades::Kept, &json!({ "data": "test" })));
        let read = pack.splits();
        for (read, packed) in sets(&read).into_iter().zip(sets(&splits)) {
            assert_alike(read, packed);
        }
        assert!(read.train.block().unwrap().in_memory().is_none());
        assert!(read.train.files_digest(0).is_some());
        // The pack of a pack is the pack.
        let again = folder.path().join("again.pack");
        write(&read, &again);
        assert_eq!(fs::read(&again).unwrap(), fs::read(&path).unwrap());
    }
}

#[test]
fn a_reader_packs_what_it_would_hold_in_memory() {
    let files = ["a/1.png", "a/2.png", "b/1.png", "c/1.png", "c/2.png", "d/1.png"];
    let files: Vec<_> = files.into_iter().zip(1..).collect();
    let root = pictures(&files);
    put(root.path(), "b/0.png", "no picture");
    put(root.path(), "c/0.png", "no picture either");
    let options = ReadOptions { on_broken: OnBroken::Skip, ..ReadOptions::square(5) };
    let in_memory = image_folder_splits(root.path(), &options, 3).unwrap();
    let path = root.path().join("images.pack");
    let writer = Arc::new(PackWriter::create(&path).unwrap());
    let options = ReadOptions { store: PixelStore::Pack(writer.clone()), ..options };
    let report = image_folder_splits(root.path(), &options, 3).unwrap();
    assert_eq!(report.skipped.len(), 2);
    assert_eq!(report.skipped, in_memory.skipped);
    assert!(!path.exists());
    writer.finish(&report.data, Shades::Kept, Value::Null).unwrap();
    let pack = Pack::open(&path).unwrap();
    pack.check().unwrap();
    for (read, packed) in sets(&pack.splits()).into_iter().zip(sets(&in_memory.data)) {
        assert_alike(read, packed);
        for class in 0..packed.classes() {
            assert_eq!(read.files_digest(class), packed.files_digest(class));
        }
    }
    // An error leaves no part of a pack behind.
    let options = ReadOptions { on_broken: OnBroken::Fail, ..options };
    assert!(image_folder_splits(root.path(), &options, 3).is_err());
    drop((writer, options, report));
    let left = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("partial")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_that_is_no_whole_pack_says_so_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pack");
    write(&splits(), &path);
    let whole = fs::read(&path).unwrap();
    let changed = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        bytes
    };
    let cases = [
        (Vec::new(), "it has only 0 bytes"),
        (whole[..50].to_vec(), "it has only 50 bytes"),
        (whole[..whole.len() - 1].to_vec(), "it was cut short: it has "),
        ([&whole[..], &[0]].concat(), " bytes where a pack has "),
        (changed(0), "it does not begin as a pack does"),
        (changed(16), "it is of version 0, and version 1 is read"),
        (changed(24), "it "),
        (changed(40), "its header is damaged: the checksum differs"),
        (changed(whole.len() - 2), "its header is damaged: the checksum differs"),
    ];
    for (bytes, reason) in cases {
        fs::write(&path, bytes).unwrap();
        let error = Pack::open(&path).unwrap_err().to_string();
        let begins = format!("{} is not a whole pack file: ", path.display());
        assert!(error.starts_with(&begins) && error.contains(reason), "{error} ({reason})");
        assert!(!error.contains('\n'), "{error}");
    }
    fs::write(&path, changed(PIXELS as usize + 99)).unwrap();
    let error = Pack::open(&path).unwrap().check().unwrap_err().to_string();
    assert!(error.ends_with("its pixels are not those that were written: their checksum differs"));
}

#[test]
fn a_header_that_does_not_fit_its_pixels_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pack");
    write(&splits(), &path);
    let sound = Pack::open(&path).unwrap().header;
    let refused = |change: &dyn Fn(&mut Header)| {
        let mut header = sound.clone();
        change(&mut header);
        let header = serde_json::to_vec(&header).unwrap();
        Beginning::new(480, &header).header(&header).unwrap_err()
    };
    let reason = refused(&|header| header.images = 11);
    assert_eq!(reason, "it has 480 bytes of pixels for 11 images of 3x4x4");
    let reason = refused(&|header| header.images = usize::MAX);
    assert!(reason.starts_with("it has 480 bytes of pixels for "), "{reason}");
    let reason = refused(&|header| header.image = ImageShape::new(0, 4, 4));
    assert!(reason.contains("hold nothing"), "{reason}");
    for (first, images) in [(10, 1), (9, 2), (usize::MAX, 1), (0, 0), (1, usize::MAX)] {
        let reason = refused(&|header| {
            let class = &mut header.test.classes[0];
            (class.first, class.images) = (first, images);
        });
        assert_eq!(reason, "class c has no images, or more than there are");
    }
    let reason = refused(&|header| header.test.classes[0].name = "a".to_owned());
    assert_eq!(reason, "it has two classes a");
    let reason = refused(&|header| header.train.scaling.std[0] = 0.0);
    assert!(reason.contains("positive deviations"), "{reason}");
    let reason = refused(&|header| {
        header.image = ImageShape::new(3, 2, 8);
        header.test.draws_turns = true;
    });
    assert_eq!(reason, "class c turns images of 3x2x8");
}

#[test]
fn a_pack_that_is_cut_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pack");
    write(&splits(), &path);
    let set = Pack::open(&path).unwrap().splits().test;
    fs::File::options().write(true).open(&path).unwrap().set_len(PIXELS + 10).unwrap();
    let mut out = vec![0; set.image_shape().values()];
    for turn in [QuarterTurn::R0, QuarterTurn::R90] {
        let error = set.write_image(0, 0, turn, &mut out).unwrap_err().to_string();
        let reason = "is not a whole pack file: it was cut short after it was opened";
        assert!(error.ends_with(reason), "{error}");
    }
}

#[test]
fn sets_of_different_images_are_no_pack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pack");
    fs::write(&path, "what was there").unwrap();
    let apart = Splits { test: splits().test, ..splits() };
    let writer = PackWriter::create(&path).unwrap();
    let error = writer.finish(&apart, Shades::Kept, Value::Null).unwrap_err();
    assert!(matches!(error, DataError::SeparateSets));
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"what was there");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn sets_that_share_a_class_are_no_pack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pack");
    fs::write(&path, "what was there").unwrap();
    let all = splits();
    let shared = Splits { test: all.train.clone(), ..all };
    let writer = PackWriter::create(&path).unwrap();
    let error = writer.finish(&shared, Shades::Kept, Value::Null).unwrap_err();
    assert_eq!(error.to_string(), "these sets make no pack: it has two classes d");
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"what was there");
}

#[test]
fn a_part_of_an_image_behind_the_others_is_no_pack() {
    let folder = tempfile::tempdir().unwrap();
    let writer = PackWriter::create(folder.path().join("a.pack")).unwrap();
    writer.append(&[7; 3 * 48]).unwrap();
    let classes = ["a", "b", "c"].map(|name| (name.to_owned(), 1));
    let set = writer.images(ImageShape::new(3, 4, 4), classes).unwrap();
    writer.append(&[7; 5]).unwrap();
    let [train, validation, test] = [0, 1, 2].map(|class| set.select(&[class]));
    let splits = Splits { train, validation, test };
    let error = writer.finish(&splits, Shades::Kept, Value::Null).unwrap_err().to_string();
    assert!(error.contains("149 bytes of pixels for 3 images"), "{error}");
}
