mod listing;
mod parts;
mod read;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::data::{DataError, ImageSet, ImageShape, PackWriter, PictureLimits, Result, Splits};

pub(super) use super::decode::decode_file;
use listing::classes_of;
pub(super) use listing::{class_of, classes_in, files_below, split_folders, visible_in};
pub(super) use parts::{PARTS, Parts, read_parts, shuffled_into_parts, try_each};
pub(super) use read::{Class, Source, read, write_pixels};
pub use read::{ClassFiles, sound_pictures};

/// The channels of a pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Color {
    /// One channel of brightness.
    Grey,
    /// Red, green and blue.
    #[default]
    Rgb,
}

impl Color {
    const fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
        }
    }
}

/// The treatment of an image that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnBroken {
    /// Reading stops with an error that names it.
    #[default]
    Fail,
    /// It is left out and listed in [`FolderReport::skipped`].
    Skip,
}

/// The place of the pixels that a reader decodes.
#[derive(Clone, Debug, Default)]
pub enum PixelStore {
    /// Memory, which has to hold all of them.
    #[default]
    Memory,
    /// A pack, which is still to be [finished](PackWriter::finish); memory holds a few images at a time.
    Pack(Arc<PackWriter>),
}

/// Options for reading images of any source.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Pixels from top to bottom that every image is stretched to.
    pub height: usize,
    /// Pixels from left to right.
    pub width: usize,
    /// One channel or three.
    pub color: Color,
    /// The treatment of a broken image: an error, or left out.
    pub on_broken: OnBroken,
    /// The largest image in a file that is decoded.
    pub limits: PictureLimits,
    /// The place of the pixels.
    pub store: PixelStore,
}

impl ReadOptions {
    /// Images of `side` x `side` pixels in red, green and blue; a broken one is an error.
    pub fn square(side: usize) -> Self {
        let (color, on_broken) = (Color::default(), OnBroken::default());
        let (limits, store) = (PictureLimits::default(), PixelStore::default());
        Self { height: side, width: side, color, on_broken, limits, store }
    }

    pub(super) fn shape(&self) -> Result<ImageShape> {
        let shape = ImageShape::new(self.color.channels(), self.height, self.width);
        shape.check()?;
        Ok(shape)
    }
}

/// The classes of a folder of folders, each with its name and its files of pictures, both in order of name.
///
/// Files are those that [`image_folder`] takes for images; none is read.
///
/// # Errors
/// When the folder cannot be read, has no folder in it, has pictures beside these, or one of them has no picture or is no
/// [name of a class](crate::data::class_name).
pub fn picture_files(root: impl AsRef<Path>) -> Result<Vec<(String, Vec<PathBuf>)>> {
    classes_in(root.as_ref())
}

/// The classes that a folder is, each with its name and its files of pictures: if it has folders these are
/// [classes](picture_files), else it is one itself.
///
/// # Errors
/// The errors of [`picture_files`]; and when there is no picture.
pub fn pictures_by_class(folder: impl AsRef<Path>) -> Result<Vec<(String, Vec<PathBuf>)>> {
    classes_of(folder.as_ref())
}

/// The files of pictures in a folder and in the folders below, in order of path.
///
/// # Errors
/// When a folder cannot be read, or there is no picture.
pub fn pictures_in(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let pictures = files_below(folder, &listing::EXTENSIONS)?;
    match pictures.is_empty() {
        true => Err(DataError::NoImages { path: folder.to_owned() }),
        false => Ok(pictures),
    }
}

/// An image that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenImage {
    /// The file; inside an archive, the archive's path comes first.
    pub path: PathBuf,
    /// The fault in it.
    pub reason: String,
}

impl fmt::Display for BrokenImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// The images read from a folder, and a list of the files that were not read.
#[derive(Clone, Debug)]
pub struct FolderReport<D> {
    /// An [`ImageSet`], or [`Splits`].
    pub data: D,
    /// Broken images that were left out; empty under [`OnBroken::Fail`].
    pub skipped: Vec<BrokenImage>,
    /// Files that were left out, each after an earlier one of its class with equal bytes.
    pub duplicates: Vec<[PathBuf; 2]>,
    /// Files of two classes with equal bytes: their labels contradict each other. Both were read.
    pub contradictions: Vec<[PathBuf; 2]>,
    /// Rows of a list that name a picture a second time, under the same class: it is read once.
    pub repeated_rows: usize,
}

impl<D> FolderReport<D> {
    /// Data of which nothing was left out.
    pub fn whole(data: D) -> Self {
        let (skipped, duplicates, contradictions) = Default::default();
        Self { data, skipped, duplicates, contradictions, repeated_rows: 0 }
    }

    /// The same with other data.
    pub fn map<T>(self, make: impl FnOnce(D) -> T) -> FolderReport<T> {
        let Self { data, skipped, duplicates, contradictions, repeated_rows } = self;
        FolderReport { data: make(data), skipped, duplicates, contradictions, repeated_rows }
    }
}

/// Images of your own: a folder of folders, one for each class, read into one set.
///
/// ```text
/// root/cat/1.png          root/train/cat/1.png
/// root/cat/2.jpg          root/val/fox/1.png      (or validation)
/// root/dog/1.webp         root/test/owl/1.png
/// ```
///
/// All images in a class's folder and in those below are of the class. Files ending in png, jpg, jpeg, bmp, gif, webp,
/// tif or tiff are images, their format is recognised by their content; those ending in avif, heic or heif are broken
/// ones. Other files and everything hidden are passed over: names that begin with a dot, and folders that systems make
/// (`__MACOSX`, `@eaDir`, `$RECYCLE.BIN`). Links are followed, into each folder once. Classes and images are taken in
/// order of name, so the same folder gives the same set everywhere. All images are held in memory, one byte a value,
/// unless they go to a [pack](PixelStore::Pack).
///
/// # Conventions
/// Images are stretched to the size wanted, not cropped, with a triangle filter that widens as the
/// image shrinks: torchvision's `Resize((h, w))` with bilinear interpolation and antialiasing. One
/// that has the size already is kept as it is. Grey is 0.2126 R + 0.7152 G + 0.0722 B (Rec. 709);
/// PIL weights by Rec. 601. Images are turned as cameras noted. Transparency is ignored; of a moving image the
/// first frame counts. Files of a class with equal bytes are one image, and cut files are broken ones.
///
/// # Errors
/// If the folder is absent or has no subfolder, has images beside these, or more than memory can hold; if a class has no
/// image left, no [plain name](crate::data::class_name), or a folder or name in common with another; if a link leads
/// nowhere; or if images are broken and are not to be skipped: all of them are in the error.
///
/// # Example
/// ```no_run
/// use fewshot::data::{OnBroken, ReadOptions, image_folder_splits};
///
/// let options = ReadOptions { on_broken: OnBroken::Skip, ..ReadOptions::square(84) };
/// let report = image_folder_splits("birds", &options, 1)?;
/// println!("{:?} classes, {} skipped", report.data.classes(), report.skipped.len());
/// # Ok::<(), fewshot::data::DataError>(())
/// ```
pub fn image_folder(
    root: impl AsRef<Path>,
    options: &ReadOptions,
) -> Result<FolderReport<ImageSet>> {
    options.shape()?;
    read(&classes_in(root.as_ref())?, options, decode_file)
}

/// Reads images like [`image_folder`], and splits the classes.
///
/// If the root has the folders `train`, `val` (or `validation`) and `test`, the classes are
/// their subfolders and `seed` is of no account. Otherwise the classes are shuffled by `seed`
/// and their names: 16 % of them, rounded to the nearest number but at least one, to validate, 20 %
/// likewise to test, the others to train on. A class more or less moves no other from one split to
/// another, except at most three at the boundaries of the shares.
///
/// # Errors
/// The errors of [`image_folder`], fewer than 3 classes to split, or one name in two splits.
///
/// # Source
/// 64, 16 and 20 % are the shares of mini-ImageNet's 100 classes: Ravi and Larochelle (2017).
pub fn image_folder_splits(
    root: impl AsRef<Path>,
    options: &ReadOptions,
    seed: u64,
) -> Result<FolderReport<Splits>> {
    let root = root.as_ref();
    options.shape()?;
    let parts = match split_folders(root) {
        Some(folders) => try_each(folders, |folder| classes_in(&folder))?,
        None => shuffled_into_parts(classes_in(root)?, seed)?,
    };
    read_parts(root, parts, options, decode_file)
}

#[cfg(test)]
mod tests;
