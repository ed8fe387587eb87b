//! Entries of a file's metadata: the classes, the network, and how pictures are prepared.

use burn::tensor::backend::Backend;
use fewshot_models::onnx::{Graph, OnnxError};
use fewshot_models::{EncoderConfig, Interpolation, Normalization, Preprocessing};
use serde_json::{Value, json};

use crate::adapted::{AdaptedModel, BackboneOrigin, PretrainedBackbone};
use crate::data::{Preparation, Shades};

/// Entries of the metadata, each with its key.
pub(super) struct Metadata(Vec<(&'static str, String)>);

impl Metadata {
    /// The entries of a network: the program, the network, and the steps that make its pictures.
    pub(super) fn network<B: Backend>(network: &PretrainedBackbone<B>) -> Self {
        let origin = network.origin();
        Self(vec![
            ("created_by", concat!("fewshot ", env!("CARGO_PKG_VERSION")).to_owned()),
            ("backbone", origin.to_string()),
            ("preprocessing", preprocessing(origin).to_string()),
        ])
    }

    /// The same with the names of the classes and the method that learned them.
    pub(super) fn model<B: Backend>(
        model: &AdaptedModel<B>,
        network: &PretrainedBackbone<B>,
    ) -> Self {
        let Self(mut entries) = Self::network(network);
        entries.push(("method", model.method().to_owned()));
        entries.push(("classes", json!(model.class_names()).to_string()));
        Self(entries)
    }

    /// The file of a graph with this metadata.
    pub(super) fn written(&self, graph: Graph) -> Result<Vec<u8>, OnnxError> {
        let entries: Vec<_> = self.0.iter().map(|(key, value)| (*key, value.as_str())).collect();
        graph.into_file(&entries)
    }
}

/// The steps from a picture to the input as a JSON object; `mean`, `deviation` and `shades` are steps of the graph.
fn preprocessing(origin: &BackboneOrigin) -> Value {
    let preparation = origin.preparation();
    let image = preparation.image();
    let sizes = json!({"channels": image.channels, "height": image.height, "width": image.width});
    let more = match preparation {
        Preparation::Published(Preprocessing { resize, crop, interpolation, mean, deviation }) => {
            json!({
                "fit": "crop",
                "resize": resize,
                "crop": crop,
                "interpolation": interpolation,
                "mean": decimals(&mean),
                "deviation": decimals(&deviation),
                "shades": Shades::Kept,
            })
        }
        Preparation::Stretched { shades, .. } => {
            let normalization = trained_network(origin).and_then(EncoderConfig::normalization);
            let or = |value: f64, of: fn(Normalization) -> [f32; 3]| match normalization {
                Some(normalization) => decimals(&of(normalization)),
                None => vec![value; image.channels],
            };
            json!({
                "fit": "stretch",
                "interpolation": Interpolation::Bilinear,
                "mean": or(0.0, |of| of.mean),
                "deviation": or(1.0, |of| of.deviation),
                "shades": shades,
            })
        }
    };
    let parts = [sizes, more].into_iter().filter_map(|part| part.as_object().cloned());
    Value::Object(parts.flatten().collect())
}

/// The configuration of a network that was trained here.
fn trained_network(origin: &BackboneOrigin) -> Option<&EncoderConfig> {
    match origin {
        BackboneOrigin::Trained(trained) => Some(&trained.network),
        BackboneOrigin::Published(_) => None,
    }
}

/// Numbers with as few digits as tell them apart in `f32`.
fn decimals(values: &[f32]) -> Vec<f64> {
    let decimal = |value: &f32| value.to_string().parse().expect("a number is written as one");
    values.iter().map(decimal).collect()
}
