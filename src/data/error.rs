use std::io;
use std::path::PathBuf;

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

    /// An archive is damaged, or is none.
    #[error("{path} is not a whole zip file: {reason}")]
    Zip {
        /// The archive.
        path: PathBuf,
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

    /// An archive or folder holds no image at the depth where Omniglot's lie.
    #[error("{path} holds no images named Alphabet/characterNN/*.png")]
    NoCharacters {
        /// The archive or folder.
        path: PathBuf,
    },

    /// A list of the Vinyals split is absent.
    #[error(
        "no split list {path}: the lists are published at \
         github.com/jakesnell/prototypical-networks in data/omniglot/splits/vinyals"
    )]
    SplitListMissing {
        /// The list.
        path: PathBuf,
    },

    /// A line of a split list names nothing that the data has.
    #[error("{path}, line {line}: {text:?} {reason}")]
    SplitList {
        /// The list.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// A split list has no line.
    #[error("the split list {path} is empty")]
    EmptySplitList {
        /// The list.
        path: PathBuf,
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

    /// A folder has no subfolder, so there are no classes.
    #[error("{path} has no subfolders: each class is a folder of images")]
    NoClasses {
        /// The folder.
        path: PathBuf,
    },

    /// The folder of a class holds no image that could be read.
    #[error("{path} has no readable png, jpg, jpeg, bmp, gif or webp image ({skipped} broken)")]
    NoImages {
        /// The folder of the class.
        path: PathBuf,
        /// Images in it that were skipped because they are broken.
        skipped: usize,
    },

    /// A class has no image.
    #[error("class {class} has no image")]
    EmptyClass {
        /// The class.
        class: String,
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

    /// Images without a single value were asked for.
    #[error("images of {shape} hold nothing: every number must be at least 1")]
    EmptyShape {
        /// Channels, height and width.
        shape: ImageShape,
    },

    /// Images larger than any are.
    #[error("images of {shape} are too large: no number may be above {largest}")]
    HugeShape {
        /// Channels, height and width.
        shape: ImageShape,
        /// The largest number that is taken.
        largest: usize,
    },

    /// Images that are not square cannot be turned by 90 degrees.
    #[error("only square images can be rotated, these are {shape}")]
    NotSquare {
        /// The shape of the images.
        shape: ImageShape,
    },

    /// Two sets cannot be joined.
    #[error("the two sets differ in {what} and cannot become one")]
    DifferentSets {
        /// What they differ in.
        what: &'static str,
    },

    /// A scaling is for images of another number of channels.
    #[error(
        "images of {channels} channels need as many means and deviations, \
         there are {means} and {stds}"
    )]
    ScalingChannels {
        /// Channels of the images.
        channels: usize,
        /// Means given.
        means: usize,
        /// Standard deviations given.
        stds: usize,
    },

    /// A scaling would make numbers that are not finite.
    #[error("means must be finite and deviations positive, there are {mean:?} and {std:?}")]
    ScalingValues {
        /// Means given.
        mean: Vec<f32>,
        /// Standard deviations given.
        std: Vec<f32>,
    },

    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// The name of a file does not say what features are in.
    #[error("{path} is not named as a file of features: there are {}", wanted.join(" and "))]
    FeatureExtension {
        /// The file.
        path: PathBuf,
        /// Endings of names that can be read, or written.
        wanted: &'static [&'static str],
    },

    /// Parquet is not compiled in.
    #[error(
        "{path} is Parquet, which takes a build with the feature parquet (`--features parquet`)"
    )]
    NoParquet {
        /// The file.
        path: PathBuf,
    },

    /// A file of features is damaged, or is none.
    #[error("{path} is not a whole {format} file: {reason}")]
    FeatureFile {
        /// The file.
        path: PathBuf,
        /// What it should be.
        format: &'static str,
        /// What its reader said.
        reason: String,
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

    /// A class has no row of features, or rows of no length.
    #[error("class {class} has no features")]
    EmptyFeatures {
        /// The class.
        class: String,
    },

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

    /// A feature is no number.
    #[error("{what} has a feature that is not finite")]
    NotFinite {
        /// What has it.
        what: String,
    },

    /// A tensor or column of a file holds no features.
    #[error("{name} is {found}, wanted are {wanted}")]
    NoFeaturesIn {
        /// The tensor or column.
        name: String,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: String,
    },
}
