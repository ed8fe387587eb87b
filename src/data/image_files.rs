//! Files that the tests of the readers make.

use std::fs;
use std::path::Path;

use image::{Rgb, RgbImage};
use tempfile::TempDir;

use crate::data::{ClassDataset, ImageSet, QuarterTurn};

/// A folder with one even image of each path, its level of red the number beside it.
pub(super) fn pictures(files: &[(&str, u8)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, red) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(8, 6, Rgb([*red, 10, 20])).save(path).unwrap();
    }
    root
}

pub(super) fn put(root: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(super) fn image(set: &ImageSet, class: usize, example: usize) -> Vec<u8> {
    let mut out = vec![0; set.image_shape().values()];
    set.write_image(class, example, QuarterTurn::R0, &mut out).unwrap();
    out
}

/// The first value of an image.
pub(super) fn red(set: &ImageSet, class: usize, example: usize) -> u8 {
    image(set, class, example)[0]
}

pub(super) fn names(set: &ImageSet) -> Vec<String> {
    (0..set.classes()).map(|class| set.class_name(class)).collect()
}

/// Values that [`pickled`] writes.
pub(super) enum Py {
    Int(i32),
    Text(&'static str),
    Bytes(Vec<u8>),
    List(Vec<Py>),
    Dict(Vec<(&'static str, Py)>),
    /// An array of uint8.
    Array(Vec<usize>, Vec<u8>),
}

/// A pickle of protocol 3, as Python and NumPy 1 write it.
pub(super) fn pickled(value: &Py) -> Vec<u8> {
    let mut bytes = vec![0x80, 3];
    write(value, &mut bytes);
    bytes.push(b'.');
    bytes
}

fn write(value: &Py, out: &mut Vec<u8>) {
    let counted =
        |code: u8, bytes: &[u8]| [&[code][..], &(bytes.len() as u32).to_le_bytes(), bytes].concat();
    match value {
        Py::Int(number) => out.extend([&b"J"[..], &number.to_le_bytes()].concat()),
        Py::Text(text) => out.extend(counted(b'X', text.as_bytes())),
        Py::Bytes(bytes) => out.extend(counted(b'B', bytes)),
        Py::List(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| write(item, out));
            out.push(b'e');
        }
        Py::Dict(entries) => {
            out.extend(b"}(");
            for (key, value) in entries {
                write(&Py::Text(key), out);
                write(value, out);
            }
            out.push(b'u');
        }
        Py::Array(shape, bytes) => {
            out.extend(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01(");
            shape.iter().for_each(|&size| write(&Py::Int(size as i32), out));
            out.extend(b"tcnumpy\ndtype\nX\x02\0\0\0u1K\x00K\x01\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xff");
            out.extend(b"J\xff\xff\xff\xffK\x00tb\x89");
            write(&Py::Bytes(bytes.clone()), out);
            out.extend(b"tb");
        }
    }
}
