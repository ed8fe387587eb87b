use std::io;
use std::path::PathBuf;

use burn::tensor::backend::ExecutionError;
use fewshot_models::WeightsError;

use crate::data::DataError;
use crate::precision::PrecisionError;

/// Why a network could not be adapted to pictures, or an adapted model not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum AdaptedModelError {
    /// Pictures could not be read, or embeddings are not finite.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Weights could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// No backbone has this name.
    #[error("there is no backbone {name:?}: there are {}", known.join(", "))]
    UnknownBackbone { name: String, known: Vec<&'static str> },
    /// No method has this name.
    #[error("there is no method {name:?}: there are {}", known.join(", "))]
    UnknownMethod { name: String, known: Vec<&'static str> },
    /// An embedding that is not finite, or for which the head gives numbers that are not: weights are too large.
    #[error("embedding {embedding} of {embeddings} is not finite, or its probabilities are not")]
    NotFinite { embedding: usize, embeddings: usize },
    /// There is nothing to choose among.
    #[error("{classes} class: it takes at least two to choose among")]
    TooFewClasses { classes: usize },
    /// No class has this name.
    #[error("there is no class {name:?}: there are {}", known.join(", "))]
    UnknownClass { name: String, known: Vec<String> },
    /// Embeddings by which no class differs from another.
    #[error("all embeddings are equal: nothing tells the classes of {embeddings} examples apart")]
    AllEqual { embeddings: usize },
    /// An embedding whose products are beyond what 32 bits hold.
    #[error(
        "row {row} of class {class} has values up to {value:e}: embeddings have at most {most:e}"
    )]
    LargeValue { class: String, row: usize, value: f32, most: f32 },
    /// The device ended what it was asked for with an error.
    #[error(transparent)]
    Device(#[from] ExecutionError),
    /// Embeddings of another length than the model's.
    #[error("embeddings have {actual} values, those of the model have {expected}")]
    OtherLength { expected: usize, actual: usize },
    /// Pictures or weights were given for a model of embeddings that another program has made.
    #[error(
        "the model is of embeddings that another program has made: it has no network, and takes no pictures"
    )]
    NoNetwork,
    /// The network computes in a precision that the backend lacks.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// Weights were given for a model that has its own.
    #[error("{} has the weights of its network in it: no file of them is wanted", path.display())]
    OwnWeights { path: PathBuf },
    /// The file is of a later version of this library, or no adapted model.
    #[error("{} {reason}", path.display())]
    NoModel { path: PathBuf, reason: String },
    /// The backbone's weights are not where they were, nor in the cache. `sha256` is what the file
    /// must hash to; `published`, whether they are [`PublishedWeights`](super::PublishedWeights).
    #[error(
        "the weights of {backbone} with the sha256 {sha256} are not at {}: {}say where they are",
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" nor at "),
        if *published { format!("download them by `fewshot backbones get {backbone}`, or ") } else { String::new() }
    )]
    NoWeights { backbone: String, sha256: String, tried: Vec<PathBuf>, published: bool },
    /// A model that was read from memory without the network of its embeddings.
    #[error("the model needs the weights of {backbone} with the sha256 {sha256}: load them first")]
    WeightsNeeded { backbone: String, sha256: String },
    /// Weights that are asked for by the name of their network alone have not been downloaded.
    #[error(
        "the weights of {backbone} are not in the cache: `fewshot backbones get {backbone}` downloads them, \
         {backbone}:FILE says where else they are"
    )]
    NotCached { backbone: &'static str },
    /// No file of weights with a checksum is published for a network.
    #[error(
        "the weights of {backbone} have no address to download them from: they are linked at {page}, and {backbone}:FILE \
         says where they are"
    )]
    NoDownload { backbone: &'static str, page: &'static str },
    /// A file of the cache has another hash than its name says.
    #[error("{} is damaged: `fewshot backbones get {backbone}` downloads it again", path.display())]
    DamagedWeights { backbone: &'static str, path: PathBuf },
    /// A file that is published for another network than the one that it was given for.
    #[error("{} is a published file of {network}, not of {backbone}", path.display())]
    AnotherNetwork { path: PathBuf, backbone: &'static str, network: &'static str },
    /// Weights that are not those of the model.
    #[error("{} are other weights of {backbone} than the model's, whose sha256 is {sha256}", path.display())]
    OtherWeights { backbone: String, sha256: String, path: PathBuf },
    /// A model that notes another preparation of pictures than its network has.
    #[error("the model notes another preparation of pictures than that of {backbone}")]
    OtherPreprocessing { backbone: String },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}
