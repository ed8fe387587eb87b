use std::fs;
use std::io::Cursor;
use std::path::Path;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use image::{DynamicImage, ExtendedColorType, ImageEncoder, ImageFormat, Rgb, RgbImage};
use serde_json::Value;

use super::orientation::tests::{Order, exif};
use super::{PictureLimits, decode};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

fn picture() -> RgbImage {
    let pixel = |x: u32, y: u32| Rgb([(x * 11) as u8, (y * 17) as u8, (x * y * 3) as u8]);
    RgbImage::from_fn(23, 19, pixel)
}

fn encoded(format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture().write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// With a block of Exif.
fn noted(mut encoder: impl ImageEncoder, picture: &RgbImage, exif: Vec<u8>) {
    encoder.set_exif_metadata(exif).unwrap();
    let (width, height) = picture.dimensions();
    encoder.write_image(picture, width, height, ExtendedColorType::Rgb8).unwrap();
}

fn read(bytes: &[u8]) -> Result<DynamicImage, String> {
    let decoded = decode(bytes, Path::new("a picture"), PictureLimits::default());
    decoded.map_err(|error| error.to_string())
}

fn error(bytes: &[u8]) -> String {
    read(bytes).unwrap_err()
}

fn assert_no_cut_changes_pixels(name: &str, bytes: &[u8], refused_below: usize) {
    let whole = read(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    for length in 0..bytes.len() {
        match read(&bytes[..length]) {
            Ok(cut) => {
                assert!(length >= refused_below, "{name} is read at {length} of {}", bytes.len());
                assert_eq!(cut, whole, "{name} at {length} of {}", bytes.len());
            }
            Err(error) => assert!(error.starts_with("a picture is not a readable image: ")),
        }
    }
    let longer = [bytes, b"more than a picture"].concat();
    assert_eq!(read(&longer).unwrap(), whole, "{name} with bytes behind its end");
}

#[test]
fn a_cut_picture_is_an_error_or_has_all_its_pixels() {
    use ImageFormat::{Bmp, Gif, Jpeg, Png, Tiff, WebP};
    for format in [Bmp, Gif, Jpeg, Png, Tiff, WebP] {
        assert_no_cut_changes_pixels(&format!("{format:?}"), &encoded(format), 0);
    }
    let mut turned = Vec::new();
    noted(WebPEncoder::new_lossless(&mut turned), &picture(), exif(6, 3, Order::Intel));
    // The note comes after the pixels.
    assert_no_cut_changes_pixels("a turned WebP", &turned, 0);
}

/// Pillow fills in nothing by itself.
#[test]
fn a_cut_picture_that_pillow_refuses_is_refused() {
    let golden = fs::read(Path::new(TESTS).join("golden/cut_pictures.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    for (name, cut) in golden["cuts"].as_object().unwrap() {
        let bytes = fs::read(Path::new(TESTS).join("fixtures/pictures").join(name)).unwrap();
        assert_eq!(cut["bytes"], bytes.len());
        assert_no_cut_changes_pixels(name, &bytes, cut["read_from"].as_u64().unwrap() as usize);
    }
}

#[test]
fn a_cut_jpeg_is_called_cut() {
    let jpeg = encoded(ImageFormat::Jpeg);
    for share in [5, 50, 99] {
        let error = error(&jpeg[..jpeg.len() * share / 100]);
        assert!(error.contains("the file is cut: its end-of-image marker is missing"), "{error}");
    }
    // The small picture in a note has an end of its own.
    let mut with_small = jpeg[..2].to_vec();
    with_small.extend([0xff, 0xe3, 0, 6, 0xff, 0xd8, 0xff, 0xd9]);
    with_small.extend(&jpeg[2..]);
    assert_no_cut_changes_pixels("a JPEG with a small picture", &with_small, with_small.len());
}

/// The picture as it is shown, pixel by pixel: TIFF 6.0, Orientation.
fn shown(picture: &RgbImage, orientation: u32) -> RgbImage {
    let (width, height) = picture.dimensions();
    let (right, bottom) = (width - 1, height - 1);
    let size = if orientation < 5 { (width, height) } else { (height, width) };
    RgbImage::from_fn(size.0, size.1, |x, y| {
        let (x, y) = match orientation {
            1 => (x, y),
            2 => (right - x, y),
            3 => (right - x, bottom - y),
            4 => (x, bottom - y),
            5 => (y, x),
            6 => (y, bottom - x),
            7 => (right - y, bottom - x),
            _ => (right - y, x),
        };
        *picture.get_pixel(x, y)
    })
}

#[test]
fn pictures_are_turned_as_their_cameras_noted() {
    let picture = picture();
    for orientation in 1..=8 {
        let expected = DynamicImage::from(shown(&picture, orientation));
        for (kind, order) in [(3, Order::Intel), (4, Order::Motorola)] {
            let note = || exif(orientation, kind, order);
            let [mut png, mut webp, mut jpeg] = [const { Vec::new() }; 3];
            noted(PngEncoder::new(&mut png), &picture, note());
            noted(WebPEncoder::new_lossless(&mut webp), &picture, note());
            assert_eq!(read(&png).unwrap(), expected, "PNG, {orientation}");
            assert_eq!(read(&note_behind_pixels(&png)).unwrap(), expected, "PNG, {orientation}");
            assert_eq!(read(&webp).unwrap(), expected, "WebP, {orientation}");

            noted(JpegEncoder::new_with_quality(&mut jpeg, 100), &picture, note());
            let upright = read(&encoded_jpeg(&picture)).unwrap().into_rgb8();
            let expected = DynamicImage::from(shown(&upright, orientation));
            assert_eq!(read(&jpeg).unwrap(), expected, "JPEG, {orientation}");
            let tiff = read(&tiff(orientation, kind)).unwrap().into_luma8().into_raw();
            assert_eq!(tiff, shown_of_tiff(orientation), "TIFF, {orientation}");
        }
    }
}

fn encoded_jpeg(picture: &RgbImage) -> Vec<u8> {
    let mut jpeg = Vec::new();
    picture.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 100)).unwrap();
    jpeg
}

/// The same PNG with its chunk eXIf before its end.
fn note_behind_pixels(png: &[u8]) -> Vec<u8> {
    let at = png.windows(4).position(|kind| kind == b"eXIf").unwrap() - 4;
    let length = 12 + u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
    let (end, note) = (png.len() - 12, &png[at..at + length]);
    [&png[..at], &png[at + length..end], note, &png[end..]].concat()
}

/// The levels 10, 20, 30 in a row above 40, 50, 60, and how they are turned.
fn tiff(orientation: u32, kind: u16) -> Vec<u8> {
    let entry = |field: u16, kind: u16, value: u32| {
        [&field.to_le_bytes()[..], &kind.to_le_bytes(), &[1, 0, 0, 0], &value.to_le_bytes()]
            .concat()
    };
    let entries = [
        entry(0x100, 3, 3),
        entry(0x101, 3, 2),
        entry(0x102, 3, 8),
        entry(0x103, 3, 1),
        entry(0x106, 3, 1),
        entry(0x111, 4, 8),
        entry(0x112, kind, orientation),
        entry(0x115, 3, 1),
        entry(0x116, 3, 2),
        entry(0x117, 4, 6),
    ];
    let head = [&b"II*\0"[..], &[16, 0, 0, 0], &[10, 20, 30, 40, 50, 60, 0, 0]].concat();
    [&head[..], &[10, 0], &entries.concat(), &[0; 4]].concat()
}

fn shown_of_tiff(orientation: u32) -> Vec<u8> {
    let levels = RgbImage::from_fn(3, 2, |x, y| Rgb([(10 * (1 + x + 3 * y)) as u8; 3]));
    shown(&levels, orientation).pixels().map(|pixel| pixel.0[0]).collect()
}

#[test]
fn a_tiff_of_pillow_is_turned() {
    let file = Path::new(TESTS).join("fixtures/pictures/turned.tif");
    let turned = read(&fs::read(file).unwrap()).unwrap();
    assert_eq!((turned.width(), turned.height()), (19, 23));
}

#[test]
fn formats_that_are_not_read_are_named() {
    let file = |brands: &[u8]| {
        let length = 8 + brands.len() as u32;
        [&length.to_be_bytes()[..], b"ftyp", brands, b"\0\0\0\x08mdat"].concat()
    };
    let convert = |name| {
        format!("a picture is not a readable image: {name} is not read: convert it to PNG or JPEG")
    };
    assert_eq!(error(&file(b"avif\0\0\0\0mif1miaf")), convert("AVIF"));
    assert_eq!(error(&file(b"mif1\0\0\0\0mif1avif")), convert("AVIF"));
    assert_eq!(error(&file(b"heic\0\0\0\0mif1heic")), convert("HEIC"));
    assert_eq!(error(b"qoif\0\0\0\x01\0\0\0\x01\x03\0"), convert("QOI"));
    let unknown = "its content is none of png, jpeg, bmp, gif, webp and tiff";
    for bytes in [&b""[..], b"nothing", &file(b"mp42\0\0\0\0isom")] {
        assert!(error(bytes).ends_with(unknown), "{}", error(bytes));
    }
    for (name, format) in [("1.avif", "AVIF"), ("1.HEIC", "HEIC"), ("1.heif", "HEIC")] {
        let error = decode(b"nothing", Path::new(name), PictureLimits::default()).unwrap_err();
        assert!(error.to_string().contains(&format!("{format} is not read")), "{error}");
    }
}

/// A bitmap's header, which tells all that a decoder needs to begin.
fn bitmap(width: u32, height: u32) -> Vec<u8> {
    let numbers = [54, 0, 54, 40, width, height, 1 | 24 << 16, 0, 0, 0, 0, 0, 0];
    b"BM".iter().copied().chain(numbers.into_iter().flat_map(u32::to_le_bytes)).collect()
}

#[test]
fn pixels_are_limited_by_the_header() {
    let expected = "it has 20000 x 20000 pixels, 400000000 in all, and the limit is 100000000: --max-pixels \
                  allows more";
    assert!(error(&bitmap(20_000, 20_000)).ends_with(expected));
    let long = "it has 100000 x 1 pixels, and a side may have 65536";
    assert!(error(&png_that_says(100_000, 1)).ends_with(long));
    assert!(!error(&bitmap(2, 2)).contains("limit"));
    let png = encoded(ImageFormat::Png);
    let within = |pixels| decode(&png, Path::new("a picture"), PictureLimits { pixels });
    assert!(within(23 * 19).is_ok() && within(23 * 19 - 1).is_err());
}

/// A small PNG with another size in its header.
fn png_that_says(width: u32, height: u32) -> Vec<u8> {
    let mut png = encoded(ImageFormat::Png);
    png[16..24].copy_from_slice(&[width, height].map(u32::to_be_bytes).concat());
    // The checksum over the kind and the content of the first chunk.
    let sum = png[12..29].iter().fold(!0u32, |sum, &byte| {
        let bit = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        (0..8).fold(sum ^ u32::from(byte), bit)
    });
    png[29..33].copy_from_slice(&(!sum).to_be_bytes());
    png
}

#[test]
fn a_small_file_that_says_it_is_huge_is_refused_at_once() {
    let error = error(&png_that_says(32_768, 16_383));
    assert!(error.contains("it has 32768 x 16383 pixels, 536838144 in all"), "{error}");
}

#[test]
fn numbers_without_a_range_are_refused() {
    let mut file = Cursor::new(Vec::new());
    let float = DynamicImage::from(picture()).into_rgb32f();
    float.write_to(&mut file, ImageFormat::Tiff).unwrap();
    let error = error(&file.into_inner());
    assert!(error.ends_with("its pixels are floating-point numbers, whose range it does not tell"));
}
