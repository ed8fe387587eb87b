//! From a folder of pictures to a classifier: a pretrained network or one that was trained here, a few pictures of each class, a file.
//!
//! A [`PretrainedBackbone`] embeds pictures, a [head](crate::learners::heads) learns the classes from these embeddings, and
//! an [`AdaptedModel`] is both, with the embeddings kept, so that classes can be added and taken away. Of embeddings that another
//! program has made ([`EmbeddingSource::OtherProgram`]), the model is the head alone.

mod backbone;
mod calibration;
mod changes;
mod class;
mod cross_validation;
mod embedding_source;
mod error;
mod examples;
mod model;
mod model_file;
mod origin;
mod published;
mod trained;
mod unfitted;

pub use backbone::PretrainedBackbone;
pub use calibration::Calibration;
pub use changes::digest;
pub use cross_validation::CrossValidation;
pub use embedding_source::EmbeddingSource;
pub use error::AdaptedModelError;
pub use model::{AdaptedModel, Prediction};
pub use origin::{BackboneId, BackboneOrigin, TrainedNetwork, TrainingRun};
pub use published::{PUBLISHED_WEIGHTS, PublishedFile, PublishedWeights, weights_cache};
pub use unfitted::{Example, THUMBNAIL_SIDE, Thumbnail, UnfittedModel};

/// Result whose error is that of adapted models; rustdoc shows the whole type.
type Result<T = (), E = AdaptedModelError> = std::result::Result<T, E>;
