//! Networks as graphs of [ONNX](https://onnx.ai), for programs that run without this library.
//!
//! A [`Graph`] is built node by node and written by [`Graph::into_file`]. An encoder adds its nodes by [`OnnxNetwork`]. There are
//! operators of the standard domain alone, of version 17 of their set, and weights are `f32`.
//!
//! # Example
//! ```
//! use burn::backend::Flex;
//! use fewshot_models::EncoderConfig;
//! use fewshot_models::onnx::{ElementType, Graph, OnnxNetwork};
//!
//! let config = EncoderConfig::named("conv4", [1, 28, 28]).expect("a name of the list");
//! let encoder = config.init::<Flex>(&Default::default());
//! let mut graph = Graph::new("conv4");
//! let images = graph.input("images", ElementType::F32, &[1, 28, 28]);
//! let features = encoder.add_to(&mut graph, &images, [28, 28]);
//! graph.output(&features, "features", &[config.features()]);
//! let file = graph.into_file(&[("created_by", "an example")])?;
//! assert!(file.windows(7).any(|part| part == b"MaxPool"));
//! # Ok::<(), fewshot_models::onnx::OnnxError>(())
//! ```

mod convolution;
mod graph;
mod operators;
mod schema;
#[cfg(test)]
mod tests;

pub(crate) use convolution::{add_convolution, add_mapped, add_normalised, add_normalised_same};
pub use graph::{Attribute, ElementType, Graph, OnnxError, Value};
pub use operators::ConvShape;

/// A network that can be added to a [`Graph`].
pub trait OnnxNetwork {
    /// Adds the network, with batch-norm by running averages: images `[n, c, h, w]` of this height and width to the features
    /// `[n, d]` that are returned.
    ///
    /// # Conventions
    /// Products are of `f32`, whatever the [precision](crate::Encoder::precision) of the network.
    fn add_to(&self, graph: &mut Graph, images: &Value, size: [usize; 2]) -> Value;
}
