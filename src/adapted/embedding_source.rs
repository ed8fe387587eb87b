//! The makers of embeddings: a network, or a program that is not here.

use burn::tensor::backend::Backend;

use super::origin::BackboneOrigin;
use super::trained::Parameters;
use super::{AdaptedModelError, PretrainedBackbone, Result};
use crate::data::PictureLimits;

/// Source of the embeddings that a model learns from and classifies.
#[derive(Clone, Debug)]
// A model has one source, so that a box would save nothing.
#[allow(clippy::large_enum_variant)]
pub enum EmbeddingSource<B: Backend> {
    /// A network, which embeds pictures.
    Network(PretrainedBackbone<B>),
    /// Another program, of texts, sounds, tables or whatever: the model takes embeddings and no pictures. It computes on this
    /// device.
    OtherProgram(B::Device),
}

impl<B: Backend> EmbeddingSource<B> {
    /// The network, if there is one.
    pub fn network(&self) -> Option<&PretrainedBackbone<B>> {
        match self {
            Self::Network(network) => Some(network),
            Self::OtherProgram(_) => None,
        }
    }

    /// The network that pictures need.
    pub(super) fn picture_network(&self) -> Result<&PretrainedBackbone<B>> {
        self.network().ok_or(AdaptedModelError::NoNetwork)
    }

    /// The device that it computes on.
    pub fn device(&self) -> &B::Device {
        match self {
            Self::Network(network) => network.device(),
            Self::OtherProgram(device) => device,
        }
    }

    /// With these limits for pictures in files.
    pub(super) fn with_limits(self, limits: PictureLimits) -> Self {
        match self {
            Self::Network(network) => Self::Network(network.with_limits(limits)),
            other => other,
        }
    }

    pub(super) fn origin(&self) -> Option<BackboneOrigin> {
        self.network().map(|network| network.origin().clone())
    }

    /// Parameters that go into a model's file.
    pub(super) fn parameters(&self) -> Option<Parameters> {
        self.network().and_then(PretrainedBackbone::parameters)
    }
}

impl<B: Backend> From<PretrainedBackbone<B>> for EmbeddingSource<B> {
    fn from(network: PretrainedBackbone<B>) -> Self {
        Self::Network(network)
    }
}
