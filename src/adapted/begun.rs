//! Examples with the network that embedded them: all there is of a model until it has two classes.

use std::path::Path;

use burn::tensor::backend::Backend;

use super::model_file::{Content, Noted};
use super::{Calibration, LeftOut, PretrainedBackbone, Result, Thumbnail};
use crate::data::Features;

/// The examples of an [`AdaptedModel`](super::AdaptedModel), with the network that embedded them. While there is a
/// single class, it is all there is of the model.
///
/// Its file is that of an [`AdaptedModel`](super::AdaptedModel), which opens it when it has two classes.
#[derive(Clone)]
pub struct BegunModel<B: Backend> {
    /// The network.
    pub backbone: PretrainedBackbone<B>,
    /// Name of the method that classes are to be learned by.
    pub method: String,
    /// Embeddings of the examples of every class.
    pub examples: Features,
    /// A small picture of each row of these, where one is kept.
    pub thumbnails: Vec<Option<Thumbnail>>,
    /// The [digest](super::digest) of the file of each row, where it is known.
    pub digests: Vec<Option<String>>,
}

impl<B: Backend> BegunModel<B> {
    /// Reads a model's file. The weights of a published network are those in the file `weights`, or
    /// what [`PretrainedBackbone::find`] finds. If there are several classes, the examples are
    /// those of all.
    ///
    /// # Errors
    /// As [`AdaptedModel::open_with_weights`](super::AdaptedModel::open_with_weights), but for the number of
    /// classes and the method, which are checked when the second class comes.
    pub fn open(
        path: impl AsRef<Path>,
        weights: Option<&Path>,
        device: &B::Device,
    ) -> Result<Self> {
        let path = path.as_ref();
        Content::read(path)?.begun(path, weights, device)
    }

    /// Writes the file, whole or not at all. [`AdaptedModel::write`](super::AdaptedModel::write) has the calibration
    /// besides, and what was found by leaving examples out.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result {
        self.content(Calibration::default(), None).write(path.as_ref())
    }

    pub(super) fn content(&self, calibration: Calibration, left_out: Option<LeftOut>) -> Content {
        let (backbone, method) = (self.backbone.origin().clone(), self.method.clone());
        Content {
            noted: Noted { backbone, method, calibration, left_out },
            examples: self.examples.clone(),
            parameters: self.backbone.parameters(),
            thumbnails: self.thumbnails.clone(),
            digests: self.digests.clone(),
        }
    }
}
