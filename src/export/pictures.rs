//! From pictures of the network's size to the images that it takes.

use fewshot_models::Normalization;
use fewshot_models::onnx::{Attribute, ElementType, Graph, Value};

use crate::data::{Preparation, Shades};

/// Type of the pixels that a graph takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PixelType {
    /// Bytes, from 0 to 255.
    #[default]
    U8,
    /// Numbers from 0 to 1.
    F32,
}

/// Type of `f32` in ONNX.
const FLOAT: i64 = 1;

impl PixelType {
    pub(super) fn elements(self) -> ElementType {
        match self {
            Self::U8 => ElementType::U8,
            Self::F32 => ElementType::F32,
        }
    }
}

/// Adds what a [`Preparation`] does after pictures have their size: scaling, shades, mean and deviation.
pub(super) fn add_preparation(
    graph: &mut Graph,
    pictures: &Value,
    pixels: PixelType,
    preparation: &Preparation,
) -> Value {
    let scaled = match pixels {
        PixelType::F32 => pictures.clone(),
        PixelType::U8 => {
            let numbers = graph.node("Cast", &[pictures], &[("to", Attribute::Int(FLOAT))]);
            graph.scale(&numbers, 1.0 / 255.0)
        }
    };
    match preparation {
        Preparation::Published(how) => Normalization::from(*how).add_to(graph, &scaled),
        Preparation::Stretched { shades: Shades::Kept, .. } => scaled,
        Preparation::Stretched { shades: Shades::Inverted, .. } => {
            let one = graph.number(1.0);
            graph.node("Sub", &[&one, &scaled], &[])
        }
    }
}
