//! Adapted models and networks as [ONNX](https://onnx.ai) files, for programs that run without this library.
//!
//! A file is one graph: pictures of the network's size go in, and probabilities come out, as [`AdaptedModel::predict`] gives them.
//! The steps before, resizing and cropping, are in the metadata.
//!
//! # Example
//! ```
//! use burn::backend::Flex;
//! use fewshot::adapted::{AdaptedModel, PretrainedBackbone, TrainedNetwork};
//! use fewshot::data::Features;
//! use fewshot::export::{PixelType, model_to_onnx};
//! use fewshot::models::Conv4Config;
//!
//! let device = Default::default();
//! let config = Conv4Config::new([3, 16, 16]).with_channels(2);
//! let encoder = config.init::<Flex>(&device); // and trained
//! let network = PretrainedBackbone::trained(encoder, TrainedNetwork::new(config), &device);
//! let examples = [("owl".into(), vec![1.0, 0.0]), ("wren".into(), vec![0.0, 1.0])];
//! let model = AdaptedModel::adapt(network, "prototypes", Features::new(2, examples)?)?;
//! let file = model_to_onnx(&model, PixelType::U8)?;
//! assert!(file.windows(13).any(|part| part == b"probabilities"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod head;
mod metadata;
mod pictures;

use burn::tensor::backend::Backend;
use fewshot_models::onnx::{Graph, OnnxError, OnnxNetwork, Value};

use crate::adapted::{AdaptedModel, PretrainedBackbone};
use crate::data::ImageShape;
use crate::learners::heads::NoFormula;
use metadata::Metadata;

pub use pictures::PixelType;

/// Name of the input.
const PICTURES: &str = "pictures";

/// Errors of exporting a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ExportError {
    /// A method whose logits no graph gives.
    #[error(
        "a model by {method} cannot be exported, for {reason}: its network can, without the head"
    )]
    Method { method: String, reason: NoFormula },
    /// A model without a network, which pictures could go into.
    #[error(
        "the model is of embeddings that another program has made: it has no network of pictures to export"
    )]
    NoNetwork,
    /// A graph that no file holds.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
}

/// The ONNX file of a model: pictures to probabilities.
///
/// # Shapes
/// - `pictures`: `[n, c, h, w]`, of the network's size
/// - `probabilities`: `[n, classes]`, in the order of the entry `classes` of the metadata
/// - `known`: `[n]`, the probability of a known class at all; absent where [the model has none](AdaptedModel::knows_unknown)
///
/// # Errors
/// For a model without a network, for a method whose logits are no formula of an embedding, and for a graph of 2 GiB or more.
pub fn model_to_onnx<B: Backend>(
    model: &AdaptedModel<B>,
    pixels: PixelType,
) -> Result<Vec<u8>, ExportError> {
    let network = model.backbone().ok_or(ExportError::NoNetwork)?;
    let formula = model.formula().map_err(|reason| {
        let method = model.method().to_owned();
        ExportError::Method { method, reason }
    })?;
    let (mut graph, embeddings) = embedded(network, pixels);
    let calibration = model.calibration();
    let logits = head::add_logits(&mut graph, &formula, &embeddings);
    let probabilities = head::add_probabilities(&mut graph, &logits, calibration.temperature);
    graph.output(&probabilities, "probabilities", &[model.class_names().len()]);
    if let Some(line) = calibration.known {
        let known = head::add_known(&mut graph, &embeddings, model.class_directions(), line);
        graph.output(&known, "known", &[]);
    }
    Ok(Metadata::model(model, network).written(graph)?)
}

/// The ONNX file of a network alone: pictures to `embeddings` `[n, d]`.
///
/// # Errors
/// For a graph of 2 GiB or more.
pub fn network_to_onnx<B: Backend>(
    network: &PretrainedBackbone<B>,
    pixels: PixelType,
) -> Result<Vec<u8>, ExportError> {
    let (mut graph, embeddings) = embedded(network, pixels);
    graph.output(&embeddings, "embeddings", &[network.features()]);
    Ok(Metadata::network(network).written(graph)?)
}

/// A graph of pictures and the network, and the embeddings that come out.
fn embedded<B: Backend>(network: &PretrainedBackbone<B>, pixels: PixelType) -> (Graph, Value) {
    let mut graph = Graph::new("fewshot");
    let preparation = network.origin().preparation();
    let ImageShape { channels, height, width } = preparation.image();
    let pictures = graph.input(PICTURES, pixels.elements(), &[channels, height, width]);
    let images = pictures::add_preparation(&mut graph, &pictures, pixels, &preparation);
    let embeddings = network.encoder().add_to(&mut graph, &images, [height, width]);
    (graph, embeddings)
}
