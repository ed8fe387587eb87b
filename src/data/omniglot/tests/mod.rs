mod opening;
mod splitting;

use std::fs::{self, File};
use std::io::{Cursor, Write};

use image::{GrayImage, ImageFormat};
use tempfile::TempDir;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;
use crate::data::ClassDataset;
use crate::data::image_files::image;

const CHARACTERS: [(&str, &str); 2] =
    [("images_background", "Greek/character01"), ("images_evaluation", "Tibetan/character07")];

/// A white page with an ink square of this side in its upper left corner, one bit a pixel as the
/// published images are.
fn page(ink: usize) -> Vec<u8> {
    let mut bits = vec![0; 105 * 105_usize.div_ceil(8)];
    for (row, line) in bits.chunks_exact_mut(105_usize.div_ceil(8)).enumerate() {
        for column in (0..105).filter(|&column| row >= ink || column >= ink) {
            line[column / 8] |= 0x80 >> (column % 8);
        }
    }
    let mut encoded = Vec::new();
    let mut encoder = png::Encoder::new(&mut encoded, 105, 105);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&bits).unwrap();
    writer.finish().unwrap();
    encoded
}

/// A black image of eight bits a pixel.
fn black(width: u32, height: u32) -> Vec<u8> {
    let mut encoded = Cursor::new(Vec::new());
    GrayImage::new(width, height).write_to(&mut encoded, ImageFormat::Png).unwrap();
    encoded.into_inner()
}

fn zipped(path: &Path, files: &[(String, Vec<u8>)]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in files {
        zip.start_file(name.as_str(), SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Two characters of two images each, one character a half; the ink is 15 and 30 pixels wide.
fn files() -> [Vec<(String, Vec<u8>)>; 2] {
    CHARACTERS.map(|(half, character)| {
        let file = |drawer| format!("{half}/{character}/0001_{drawer:02}.png");
        vec![(file(2), page(30)), (file(1), page(15))]
    })
}

fn packed() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for ((half, _), files) in CHARACTERS.iter().zip(files()) {
        zipped(&dir.path().join(format!("{half}.zip")), &files);
    }
    dir
}

fn unpacked_under(prefix: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files().into_iter().flatten() {
        let path = dir.path().join(prefix).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

fn write_lists(dir: &TempDir, lists: [(&str, &str); 3]) {
    let folder = dir.path().join("splits/vinyals");
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in lists {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn message(dir: &TempDir) -> String {
    Omniglot::open(dir).unwrap_err().to_string()
}
