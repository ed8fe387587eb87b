use super::*;
use crate::data::image_files::{image, names, put};
use crate::data::{ClassDataset, Color};

/// A TrueType font of rectangles: each character with its width and height, of 1000 units to a line.
fn font(letters: &[(char, u16, u16)]) -> Vec<u8> {
    let be = |values: &[u16]| -> Vec<u8> {
        values.iter().flat_map(|value| value.to_be_bytes()).collect()
    };
    let mut letters = letters.to_vec();
    letters.sort();
    let (mut glyphs, mut places, mut advances) = (Vec::new(), vec![0, 0], be(&[500, 0]));
    let (mut starts, mut ends, mut deltas) = (Vec::new(), Vec::new(), Vec::new());
    for (number, &(letter, width, height)) in letters.iter().enumerate() {
        if width > 0 {
            // One contour of four points on the curve, its corners.
            glyphs.extend(be(&[1, 0, 0, width, height, 3, 0]));
            glyphs.extend([1, 1, 1, 1]);
            glyphs.extend(be(&[0, 0, width, 0, 0, height, 0, height.wrapping_neg()]));
        }
        places.push(glyphs.len() as u16 / 2);
        advances.extend(be(&[width, 0]));
        starts.push(letter as u16);
        ends.push(letter as u16);
        deltas.push((number as u16 + 1).wrapping_sub(letter as u16));
    }
    starts.push(0xffff);
    ends.push(0xffff);
    deltas.push(1);
    let (segments, count) = (ends.len() as u16, letters.len() as u16 + 1);
    let ranges = vec![0; ends.len()];
    let length = 16 + 8 * segments;
    let head = [length, 0, 2 * segments, 0, 0, 0];
    let cmap =
        [&[0, 1, 3, 1, 0, 12, 4][..], &head, &ends, &[0], &starts, &deltas, &ranges].concat();
    let head = [1, 0, 1, 0, 0, 0, 0x5f0f, 0x3cf5, 0, 1000, 0, 0, 0, 0, 0, 0, 0, 0];
    let head = be(&[&head[..], &[0, 0, 1000, 1000, 0, 8, 2, 0, 0]].concat());
    let hhea =
        [1, 0, 800, 200_u16.wrapping_neg(), 0, 1000, 0, 0, 1000, 1, 0, 0, 0, 0, 0, 0, 0, count];
    let maxp = [1, 0, count, 4, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    // The glyphs are of whole words, so their places can be halved; those of a rectangle are 34 bytes.
    let tables = [
        (b"cmap", be(&cmap)),
        (b"glyf", glyphs),
        (b"head", head),
        (b"hhea", be(&hhea)),
        (b"hmtx", advances),
        (b"loca", be(&places)),
        (b"maxp", be(&maxp)),
    ];
    let mut file = be(&[1, 0, tables.len() as u16, 0, 0, 0]);
    let mut at = 12 + 16 * tables.len();
    for (name, table) in &tables {
        file.extend(*name);
        file.extend([0_u32, at as u32, table.len() as u32].map(u32::to_be_bytes).concat());
        at += table.len().next_multiple_of(4);
    }
    for (_, mut table) in tables {
        table.resize(table.len().next_multiple_of(4), 0);
        file.extend(table);
    }
    file
}

/// A folder of fonts, each of which draws these characters as tall as its number says.
fn folder(count: u16, letters: &[(char, u16)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for number in 0..count {
        let letters: Vec<_> =
            letters.iter().map(|&(letter, width)| (letter, width, 100 + 30 * number)).collect();
        put(root.path(), &format!("some/{number:02}.TTF"), font(&letters));
    }
    root
}

fn grey(side: usize) -> ReadOptions {
    ReadOptions { color: Color::Grey, ..ReadOptions::square(side) }
}

#[test]
fn letters_that_enough_fonts_draw_are_classes() {
    // Of the comma nothing is asked, z is empty, and the Greek letter looks like the Latin one.
    let letters = [(',', 300), ('7', 400), ('A', 500), ('b', 600), ('z', 0), ('Α', 500)];
    let root = folder(20, &letters);
    put(root.path(), "readme.txt", "no font");
    put(root.path(), "copy.otf", font(&[('7', 400, 100), ('q', 100, 100)]));
    let report = fonts(&root, &grey(28), 0).unwrap();
    let splits = &report.data;
    assert_eq!(splits.classes(), [1, 1, 1]);
    let mut all = [names(&splits.train), names(&splits.validation), names(&splits.test)].concat();
    all.sort();
    assert_eq!(all, ["7", "A", "b"]);
    assert_eq!(splits.train.image_shape().to_string(), "1x28x28");
    for set in [&splits.train, &splits.validation, &splits.test] {
        assert_eq!(set.examples(0), 20);
    }
}

#[test]
fn spellings_of_one_character_are_one_class() {
    // K and the sign of Kelvin, drawn in two ways, and a filler.
    let letters = [('A', 500), ('K', 300), ('b', 600), ('\u{212a}', 400), ('\u{3164}', 700)];
    let splits = fonts(folder(20, &letters), &grey(28), 0).unwrap().data;
    let counts = [&splits.train, &splits.validation, &splits.test]
        .map(|set| (set.class_name(0), set.examples(0)));
    let mut counts: Vec<_> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    counts.sort();
    assert_eq!(counts, [("A", 20), ("K", 40), ("b", 20)]);
}

#[test]
fn a_character_is_bright_and_in_the_middle() {
    // Half as wide and half as high as a line.
    let font = FontVec::try_from_vec(font(&[('x', 500, 500), ('w', 4000, 500)])).unwrap();
    let picture = draw(&font, 'x', &grey(20)).unwrap();
    for (x, y, pixel) in picture.enumerate_pixels() {
        let inside = (5..15).contains(&x) && (5..15).contains(&y);
        assert_eq!(pixel.0, [if inside { 255 } else { 0 }], "{x}, {y}");
    }
    let wide = draw(&font, 'w', &grey(20)).unwrap();
    let columns = (0..20).filter(|&x| (0..20).any(|y| wide.get_pixel(x, y).0[0] > 127)).count();
    let rows = (0..20).filter(|&y| (0..20).any(|x| wide.get_pixel(x, y).0[0] > 127)).count();
    assert!((18..=20).contains(&columns) && (2..=3).contains(&rows), "{columns}, {rows}");
    assert!(draw(&font, 'y', &grey(20)).is_none());
}

#[test]
fn channels_are_the_same_in_color() {
    let root = folder(20, &[('a', 300), ('b', 400), ('c', 500)]);
    let splits = fonts(&root, &ReadOptions::square(16), 3).unwrap().data;
    let pixels = image(&splits.test, 0, 5);
    assert_eq!(pixels.len(), 3 * 256);
    assert!(pixels[..256] == pixels[256..512] && pixels[..256] == pixels[512..]);
}

#[test]
fn what_is_no_font_is_an_error_or_is_reported() {
    let root = folder(20, &[('a', 300), ('b', 400), ('c', 500)]);
    let whole = font(&[('a', 300, 100)]);
    put(root.path(), "cut.ttf", &whole[..60]);
    let text = fonts(&root, &grey(28), 0).unwrap_err().to_string();
    assert!(text.contains("cut.ttf is not a whole font file"), "{text}");
    let skipping = ReadOptions { on_broken: OnBroken::Skip, ..grey(28) };
    let report = fonts(&root, &skipping, 0).unwrap();
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(report.skipped[0].path, root.path().join("cut.ttf"));

    let few = folder(19, &[('a', 300)]);
    let text = fonts(&few, &grey(28), 0).unwrap_err().to_string();
    assert!(text.ends_with("has no letter or digit that 20 different fonts draw"), "{text}");
    let none = tempfile::tempdir().unwrap();
    let text = fonts(&none, &grey(28), 0).unwrap_err().to_string();
    assert!(text.ends_with("has no ttf or otf file"), "{text}");
    let nowhere = none.path().join("nowhere");
    assert!(fonts(&nowhere, &grey(28), 0).is_err());
    // A size that no image has is told before any file is looked for.
    let text = fonts(&nowhere, &grey(0), 0).unwrap_err().to_string();
    assert!(text.starts_with("images of 1x0x0 hold nothing"), "{text}");
}
