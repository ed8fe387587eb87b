use std::io;
use std::path::{Path, PathBuf};

use crate::data::ImageShape;

/// Why data could not be read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// An archive or a file of features is damaged, or is none.
    #[error("{path} is not a whole {format} file: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it should be.
        format: &'static str,
        /// What its reader said.
        reason: String,
    },

    /// An image is damaged, or is none.
    #[error("{path} is not a readable image: {reason}")]
    Image {
        /// The image; inside an archive, the archive's path comes first.
        path: PathBuf,
        /// What its reader said.
        reason: String,
    },

    /// An image of a data set with one size has another.
    #[error("{path} has {}x{} pixels, wanted are {}x{}", found.0, found.1, wanted.0, wanted.1)]
    ImageSize {
        /// The image; inside an archive, the archive's path comes first.
        path: PathBuf,
        /// Height and width that the data set has.
        wanted: (u32, u32),
        /// Height and width of the image.
        found: (u32, u32),
    },

    /// One or both halves of Omniglot are absent.
    #[error(
        "no {} in {dir}: Omniglot is images_background.zip and images_evaluation.zip, or both \
         unpacked, published at github.com/brendenlake/omniglot in python/ \
         (`fewshot data omniglot --to DIR` puts them in place)",
        missing.join(" and no ")
    )]
    OmniglotMissing {
        /// Where they were looked for.
        dir: PathBuf,
        /// Which are absent.
        missing: Vec<String>,
    },

    /// A list of classes or images is absent, empty or none, or names nothing that the data has.
    #[error("the list {path}: {reason}")]
    SplitList {
        /// The list.
        path: PathBuf,
        /// What is wrong with it, and in which line, counted from 1.
        reason: String,
    },

    /// A split was asked for by a name that is none.
    #[error("{text:?} is no Omniglot split: there are vinyals, finn and finn:SEED")]
    UnknownSplit {
        /// What was asked for.
        text: String,
    },

    /// There are too few classes to split.
    #[error("{split} needs {wanted} classes, there are {found}")]
    TooFewClasses {
        /// What the classes are for.
        split: &'static str,
        /// How many it takes.
        wanted: usize,
        /// How many there are.
        found: usize,
    },

    /// A file, folder or archive holds no class.
    #[error("{path} has no {wanted}")]
    NoClasses {
        /// The file, folder or archive.
        path: PathBuf,
        /// What should be there.
        wanted: &'static str,
    },

    /// The folder of a class holds no image.
    #[error("{path} has no png, jpg, jpeg, bmp, gif or webp image")]
    NoImages {
        /// The folder of the class.
        path: PathBuf,
    },

    /// Two classes have one name, and may be in two splits.
    #[error("there are two classes {class}, and splits must have no class in common")]
    InTwoSplits {
        /// Their name.
        class: String,
    },

    /// A pickle is damaged, or does not hold what the dataset is made of.
    #[error("the pickle {path}: {reason}")]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A class has no image or no features.
    #[error("class {class} has no {wanted}")]
    EmptyClass {
        /// The class.
        class: String,
        /// What it should have.
        wanted: &'static str,
    },

    /// The pixels are not those of the images.
    #[error("{images} images of {shape} are {} bytes, there are {found}", images * shape.values())]
    PixelCount {
        /// How many images there should be.
        images: usize,
        /// The shape of each.
        shape: ImageShape,
        /// How many bytes there are.
        found: usize,
    },

    /// Images without a value, or larger than any are, were asked for.
    #[error("images of {shape} {reason}")]
    Shape {
        /// Channels, height and width.
        shape: ImageShape,
        /// What is wrong with it.
        reason: String,
    },

    /// Images that are not square cannot be turned by 90 degrees.
    #[error("only square images can be rotated, these are {shape}")]
    NotSquare {
        /// The shape of the images.
        shape: ImageShape,
    },

    /// A scaling is for another number of channels, or would make numbers that are not finite.
    #[error(
        "images of {channels} channels need as many finite means and positive deviations, there are \
         {mean:?} and {std:?}"
    )]
    Scaling {
        /// Channels of the images.
        channels: usize,
        /// Means given.
        mean: Vec<f32>,
        /// Standard deviations given.
        std: Vec<f32>,
    },

    /// The name of a file is not that of a format of features.
    #[error("{path} is not named as a file of features: there are {}", wanted.join(" and "))]
    FeatureExtension {
        /// The file.
        path: PathBuf,
        /// Endings of names that can be read, or written.
        wanted: Vec<&'static str>,
    },

    /// What a file of features holds cannot be used.
    #[error("{path}: {source}")]
    FeaturesIn {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<DataError>,
    },

    /// There are no features.
    #[error("there is no class of features")]
    NoFeatures,

    /// Two classes have one name.
    #[error("there are two classes {class} of features")]
    TwoClasses {
        /// Their name.
        class: String,
    },

    /// Rows of features differ in length.
    #[error("{what} has {found} features in a row, wanted are {wanted}")]
    FeatureLength {
        /// What has them.
        what: String,
        /// Length of the other rows.
        wanted: usize,
        /// Length of this one.
        found: usize,
    },

    /// A tensor, column or row holds no features.
    #[error("{name} is {found}, wanted are {wanted}")]
    NoFeaturesIn {
        /// The tensor, column or row.
        name: String,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: String,
    },
}

impl DataError {
    /// A failure to read `path`.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}
