//! Examples with the network that embedded them, if it is known: all there is of a model until it has two classes.

use std::sync::Arc;

use burn::tensor::backend::Backend;

use super::EmbeddingSource;
use crate::data::Features;

/// A small picture of an example: the content of a JPEG file with [`THUMBNAIL_SIDE`] pixels along a side.
pub type Thumbnail = Arc<[u8]>;

/// Pixels along a side of a [`Thumbnail`].
pub const THUMBNAIL_SIDE: usize = 96;

/// The examples of an [`AdaptedModel`](super::AdaptedModel), with the source of their embeddings. While there is a
/// single class, it is all there is of the model.
///
/// Its file is that of an [`AdaptedModel`](super::AdaptedModel), which opens it when it has two classes.
#[derive(Clone)]
pub struct UnfittedModel<B: Backend> {
    /// The network, or the absence of one.
    pub source: EmbeddingSource<B>,
    /// Name of the method that classes are to be learned by.
    pub method: String,
    /// Embeddings of the examples of every class.
    pub examples: Features,
    /// A small picture of each row of these, where one is kept.
    pub thumbnails: Vec<Option<Thumbnail>>,
    /// The [digest](super::digest) of the file of each row, where it is known.
    pub digests: Vec<Option<String>>,
}
