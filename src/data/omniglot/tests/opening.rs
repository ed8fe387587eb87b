use super::*;

#[test]
fn zips_are_read_as_bright_ink_in_order_of_name() {
    let omniglot = Omniglot::open(packed()).unwrap();
    let characters = omniglot.characters();
    assert_eq!(characters.image_shape().to_string(), "1x28x28");
    assert_eq!((characters.classes(), characters.images()), (2, 4));
    assert_eq!(characters.class_name(1), "Tibetan/character07");
    // 15 published pixels are exactly 4 small ones.
    for (at, &pixel) in image(characters, 0, 0).iter().enumerate() {
        let inside = at % 28 < 4 && at / 28 < 4;
        assert_eq!(pixel, u8::from(inside) * 255, "pixel {at}");
    }
}

#[test]
fn folders_are_read_like_zips() {
    let of_zips = Omniglot::open(packed()).unwrap();
    for prefix in ["", "python"] {
        let of_folders = Omniglot::open(unpacked_under(prefix)).unwrap();
        for class in 0..2 {
            let zipped = image(of_zips.characters(), class, 0);
            assert_eq!(image(of_folders.characters(), class, 0), zipped);
        }
    }
}

#[test]
fn hidden_files_are_no_images() {
    let dir = packed();
    let (half, character) = CHARACTERS[0];
    let files = [
        (format!("__MACOSX/{half}/{character}/._0001_01.png"), vec![0]),
        (format!("{half}/{character}/notes.txt"), vec![0]),
        (format!("{half}/{character}/0001_01.png"), page(15)),
    ];
    zipped(&dir.path().join("images_background.zip"), &files);
    assert_eq!(Omniglot::open(dir).unwrap().characters().examples(0), 1);
}

#[test]
fn absent_halves_are_named_with_their_origin() {
    let dir = tempfile::tempdir().unwrap();
    let text = message(&dir);
    assert!(
        text.starts_with("no images_background.zip and no images_evaluation.zip in "),
        "{text}"
    );
    assert!(text.contains("github.com/brendenlake/omniglot in python/"), "{text}");
    assert!(text.contains("`fewshot data omniglot --to DIR`"), "{text}");

    let dir = packed();
    fs::remove_file(dir.path().join("images_background.zip")).unwrap();
    assert!(message(&dir).starts_with("no images_background.zip in "));
}

#[test]
fn a_zip_cut_short_or_of_something_else_is_named() {
    let dir = packed();
    let path = dir.path().join("images_evaluation.zip");
    let whole = fs::read(&path).unwrap();
    for broken in [&whole[..whole.len() / 2], b"<!DOCTYPE html>", b""] {
        fs::write(&path, broken).unwrap();
        let text = message(&dir);
        let start = format!("{} is not a whole zip file: ", path.display());
        assert!(text.starts_with(&start) && text.len() > start.len(), "{text}");
    }
}

#[test]
fn a_zip_without_characters_is_named() {
    let dir = packed();
    zipped(&dir.path().join("images_background.zip"), &[("readme.txt".into(), vec![0])]);
    let error = Omniglot::open(&dir).unwrap_err();
    assert!(
        matches!(error, DataError::NoClasses { path, .. } if path.ends_with("images_background.zip"))
    );
}

#[test]
fn a_broken_image_is_named_with_its_path_inside_the_zip() {
    let dir = packed();
    let path = dir.path().join("images_background.zip");
    let name = "images_background/Greek/character01/0001_01.png";
    let cut = page(15)[..60].to_vec();
    for bytes in [b"no image".to_vec(), cut] {
        zipped(&path, &[(name.into(), bytes)]);
        let text = message(&dir);
        assert!(
            text.starts_with(&format!("{}/{name} is not a readable image: ", path.display())),
            "{text}"
        );
    }
}

#[test]
fn an_entry_with_flipped_bits_is_named() {
    let dir = packed();
    let path = dir.path().join("images_background.zip");
    let mut bytes = fs::read(&path).unwrap();
    let signature = bytes.windows(4).position(|four| four == b"IHDR").unwrap_or(120);
    bytes[signature + 8] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(Omniglot::open(&dir), Err(DataError::Image { .. })));
}

#[test]
fn an_image_of_another_size_is_named() {
    let dir = packed();
    let path = dir.path().join("images_background.zip");
    zipped(&path, &[("Greek/character01/0001_01.png".into(), black(28, 30))]);
    let text = message(&dir);
    assert!(text.ends_with("0001_01.png has 30x28 pixels, not 105x105"), "{text}");
}
