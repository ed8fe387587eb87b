use std::io;
use std::path::{Path, PathBuf};

use super::needed_memory::needed;
use crate::data::{BrokenImage, ImageShape};
use crate::machine::Bytes;

/// Broken images that an error names, at most.
const NAMED: usize = 10;

/// Errors of reading and using data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DataError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// An archive, a font or a file of features is damaged, or has another format.
    #[error("{path} is not a whole {format} file: {reason}")]
    Damaged { path: PathBuf, format: &'static str, reason: String },
    /// An image is damaged, or has no known format. Inside an archive, the archive's path comes
    /// first.
    #[error("{path} is not a readable image: {reason}")]
    Image { path: PathBuf, reason: String },
    /// Several images are damaged, or have no known format.
    #[error("{} of {images} images cannot be read: {}", broken.len(), listed(broken))]
    BrokenImages { images: usize, broken: Vec<BrokenImage> },
    /// An image has another height and width than its data set. `path` is as for `Image`.
    #[error("{path} has {}x{} pixels, not {}x{}", actual.0, actual.1, expected.0, expected.1)]
    ImageSize { path: PathBuf, expected: (u32, u32), actual: (u32, u32) },
    /// One or both halves of Omniglot are absent.
    #[error(
        "no {} in {dir}: Omniglot is images_background.zip and images_evaluation.zip, or both \
         unpacked, published at github.com/brendenlake/omniglot in python/ \
         (`fewshot data omniglot --to DIR` puts them in place)",
        missing.join(" and no ")
    )]
    OmniglotMissing { dir: PathBuf, missing: Vec<String> },
    /// A list of classes or images is empty or cannot be read, or names what the data does not
    /// have. Lines are counted from 1.
    #[error("the list {path}: {reason}")]
    SplitList { path: PathBuf, reason: String },
    /// A name that no split has.
    #[error("{text:?} is no Omniglot split: there are vinyals, finn and finn:SEED")]
    UnknownSplit { text: String },
    /// There are too few classes to split.
    #[error("{split} needs {expected} classes, there are {actual}")]
    TooFewClasses { split: &'static str, expected: usize, actual: usize },
    /// A file, folder or archive holds no class.
    #[error("{path} has no {expected}")]
    NoClasses { path: PathBuf, expected: &'static str },
    /// The folder of a class holds no image.
    #[error("{path} has no png, jpg, jpeg, bmp, gif, webp, tif or tiff image")]
    NoImages { path: PathBuf },
    /// Pictures are beside the folder of a class.
    #[error(
        "{} {} beside {folder}: a folder is one class of pictures, or has a folder for each class",
        first_three(pictures),
        if pictures.len() == 1 { "is a picture" } else { "are pictures" }
    )]
    PicturesBesideFolder { pictures: Vec<PathBuf>, folder: PathBuf },
    /// The folders of splits are where those of classes are wanted.
    #[error("{path} has the folders of splits ({}): classes are in each of these", splits.join(", "))]
    SplitFolders { path: PathBuf, splits: Vec<String> },
    /// Two classes have a folder in common.
    #[error("{} and {} lead to one folder, which cannot be of two classes", folders[0].display(), folders[1].display())]
    OneFolder { folders: [PathBuf; 2] },
    /// The names of two folders are one, spelled in two ways of Unicode.
    #[error("{} and {} are both called {class}, in two spellings of Unicode", folders[0].display(), folders[1].display())]
    OneName { class: String, folders: [PathBuf; 2] },
    /// A name that is not a plain one.
    #[error("no class can be called {name:?}: {reason}")]
    ClassName { name: String, reason: &'static str },
    /// Two classes have one name, and may be in two splits.
    #[error("there are two classes {class}, and splits must have no class in common")]
    InTwoSplits { class: String },
    /// A pickle is damaged, or does not hold what the dataset is made of.
    #[error("the pickle {path}: {reason}")]
    Pickle { path: PathBuf, reason: String },
    /// A class has no image or no features.
    #[error("class {class} has no {expected}")]
    EmptyClass { class: String, expected: &'static str },
    /// The pixels are not those of the images.
    #[error("{images} images of {shape} are {} bytes, there are {actual}", images * shape.values())]
    PixelCount { images: usize, shape: ImageShape, actual: u64 },
    /// Sets of a pack that have pixels of their own each.
    #[error(
        "the sets to train, to validate and to test on are no views of the same images, as a pack has them"
    )]
    SeparateSets,
    /// Sets and pixels that make no pack which could be opened.
    #[error("these sets make no pack: {reason}")]
    NoPack { reason: String },
    /// Images without a value, or larger than any are, were asked for.
    #[error("images of {shape} {reason}")]
    Shape { shape: ImageShape, reason: String },
    /// Images do not fit in memory. `free` is what is left of the machine's, where that is known.
    #[error(
        "{images} images of {shape} need {} of memory, {}: a smaller --image-size or fewer images fit",
        needed(*images, *shape),
        free.map_or("which the system refuses".to_owned(), |free| format!("{free} are free"))
    )]
    Memory { images: usize, shape: ImageShape, free: Option<Bytes> },
    /// Images that are not square cannot be turned by 90 degrees.
    #[error("only square images can be rotated, these are {shape}")]
    NotSquare { shape: ImageShape },
    /// A scaling is for another number of channels, or would make numbers that are not finite.
    #[error(
        "images of {channels} channels need as many finite means and positive deviations, there are \
         {mean:?} and {std:?}"
    )]
    Scaling { channels: usize, mean: Vec<f32>, std: Vec<f32> },
    /// The name of a file does not have an ending of files of features that can be read, or
    /// written.
    #[error("{path} is not named as a file of features: there are {}", expected.join(", "))]
    FeatureExtension { path: PathBuf, expected: Vec<&'static str> },
    /// The content of a file of features cannot be used.
    #[error("{path}: {source}")]
    FeaturesIn { path: PathBuf, source: Box<DataError> },
    /// A set of features without a class.
    #[error("there is no class of features")]
    NoFeatures,
    /// Two classes have one name.
    #[error("there are two classes {class} of features")]
    TwoClasses { class: String },
    /// Rows of features differ in length.
    #[error("{what} has {actual} features in a row, not {expected}")]
    FeatureLength { what: String, expected: usize, actual: usize },
    /// A tensor, column or row holds no features.
    #[error("{name} is {actual}, not {expected}")]
    NoFeaturesIn { name: String, expected: &'static str, actual: String },
    /// Rows of features without labels, of which no class can be learned.
    #[error("its rows have no labels: a file with a label a line says them")]
    NoLabels,
    /// Labels in a file, for features that have their own.
    #[error("it has labels of its own: no file of them is wanted")]
    LabelledTwice,
    /// More or fewer labels than rows of features.
    #[error("there are {labels} labels for {rows} rows of features")]
    LabelCount { labels: usize, rows: usize },
}

/// The first of some paths, and how many more there are.
fn first_three(paths: &[PathBuf]) -> String {
    let (first, more) = paths.split_at(paths.len().min(3));
    let first: Vec<_> = first.iter().map(|path| path.display().to_string()).collect();
    match more.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

impl DataError {
    /// A failure to read `path`.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// A failure to write `path`.
    pub(super) fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// A file, folder or archive that holds no class.
    pub(super) fn no_classes(path: &Path, expected: &'static str) -> Self {
        Self::NoClasses { path: path.to_owned(), expected }
    }

    /// An image that cannot be decoded.
    pub(super) fn image<E: ToString>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self::Image { path: path.to_owned(), reason: error.to_string() }
    }

    /// The broken ones of a number of images.
    pub(crate) fn broken_images(images: usize, mut broken: Vec<BrokenImage>) -> Self {
        match broken.len() {
            1 => {
                let BrokenImage { path, reason } = broken.remove(0);
                Self::Image { path, reason }
            }
            _ => Self::BrokenImages { images, broken },
        }
    }

    /// A file that is not a whole one of its format.
    pub(super) fn damaged<E: ToString>(path: &Path, format: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::Damaged { path: path.to_owned(), format, reason: error.to_string() }
    }
}

fn listed(broken: &[BrokenImage]) -> String {
    let named = broken.iter().take(NAMED).map(BrokenImage::to_string);
    let mut named = named.collect::<Vec<_>>().join("; ");
    if broken.len() > NAMED {
        named += &format!("; and {} more", broken.len() - NAMED);
    }
    named
}
