use std::path::PathBuf;

use super::Protocol;
use crate::data::{AugmentError, ImageShape};

/// A protocol that cannot be served.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum EpisodeError {
    /// A size of zero.
    #[error("an episode needs at least one way, shot and query, found {0}")]
    Zero(Protocol),
    /// A regression task without an example to learn from or to be judged by, or with too many.
    #[error("a regression task has from 1 to 2^24 shots and queries, not {shots} and {queries}")]
    Samples { shots: usize, queries: usize },
    /// Fewer classes than ways.
    #[error("a {ways}-way episode needs {ways} classes, the split has {actual}")]
    NotEnoughClasses { ways: usize, actual: usize },
    /// A class too small for the shots and queries, the first such.
    #[error("a {protocol} episode needs {needed} examples a class, class {class} has {actual}")]
    NotEnoughExamples { protocol: Protocol, class: String, needed: usize, actual: usize },
    /// A class too small for an episode of varied size.
    #[error("an episode of varied size needs 2 examples a class, class {class} has 1")]
    NoQuery { class: String },
    /// Mini-batches without an image.
    #[error("a mini-batch needs at least one image")]
    NoImages,
    /// Fewer images than a mini-batch has.
    #[error("a mini-batch of {images} images needs as many, the split has {actual}")]
    NotEnoughImages { images: usize, actual: usize },
    /// A list of episodes that cannot be read or written, or has none.
    #[error("{}: {reason}", path.display())]
    List { path: PathBuf, reason: String },
    /// A line of a list of episodes that says what is not there, or says nothing.
    #[error("{}: line {line}: {reason}", path.display())]
    ListLine { path: PathBuf, line: u64, reason: String },
    /// An episode that a dataset does not have.
    #[error("episode {index}: {reason}")]
    Episode { index: usize, reason: String },
    /// Queries to be spread over the classes of episodes whose sizes are given otherwise.
    #[error("queries are spread where all episodes are of one protocol")]
    SpreadQueries,
    /// An `alpha` of the Dirichlet distribution of queries that is out of range.
    #[error("queries are drawn by a whole alpha from 1 to {most}, not {actual}")]
    Alpha { most: usize, actual: usize },
    /// An `alpha` of the Beta distribution of mixed images that is out of range.
    #[error("images are mixed by an alpha from {least} to {most}, not {actual}")]
    MixingAlpha { least: f64, most: f64, actual: f64 },
    /// An augmentation that images cannot be changed by.
    #[error(transparent)]
    Augment(#[from] AugmentError),
    /// Views that would all be the same.
    #[error("{views} views of an episode differ by an augmentation, and this one changes no image")]
    EqualViews { views: u32 },
    /// Images that should be augmented on an accelerator, and have too many channels or pixels for its kernel.
    #[error(
        "images of {shape} are augmented on the host; a device augments up to 4 channels of up to 4096x4096 pixels"
    )]
    AugmentedOnDevice { shape: ImageShape },
    /// Images that should lie on an accelerator, on a backend without fused operations of an
    /// accelerator.
    #[error(
        "images lie on the device of an accelerator with fused operations, which {backend} is not"
    )]
    NoAccelerator { backend: String },
    /// Images that should lie on an accelerator, of a dataset without a block of them.
    #[error("images lie on the device where the dataset has all of them in one block")]
    NoBlock,
    /// Images that should lie on an accelerator and are too many.
    #[error("the images are {bytes} bytes, and the device takes {room}")]
    NoRoom { bytes: u64, room: u64 },
}
