//! [`ResNet`] as nodes of an ONNX graph.

use burn::tensor::backend::Backend;

use super::{Block, ResNet};
use crate::onnx::{ConvShape, Graph, OnnxNetwork, Value, add_normalised};

impl<B: Backend> Block<B> {
    fn add_to(&self, graph: &mut Graph, x: &Value) -> Value {
        let shortcut = match &self.downsample {
            Some((conv, norm)) => add_normalised(graph, conv, norm, x),
            None => x.clone(),
        };
        let y = add_normalised(graph, &self.conv1, &self.bn1, x);
        let y = graph.node("Relu", &[&y], &[]);
        let mut y = add_normalised(graph, &self.conv2, &self.bn2, &y);
        if let (Some(conv), Some(norm)) = (&self.conv3, &self.bn3) {
            let active = graph.node("Relu", &[&y], &[]);
            y = add_normalised(graph, conv, norm, &active);
        }
        let sum = graph.node("Add", &[&y, &shortcut], &[]);
        graph.node("Relu", &[&sum], &[])
    }
}

impl<B: Backend> ResNet<B> {
    /// Adds all but the means of the maps.
    pub(crate) fn add_maps(&self, graph: &mut Graph, images: &Value) -> Value {
        let stem = add_normalised(graph, &self.conv1, &self.bn1, images);
        let stem = graph.node("Relu", &[&stem], &[]);
        let stem = graph.max_pool(&stem, ConvShape::square(3, 2, 1));
        self.blocks().fold(stem, |x, block| block.add_to(graph, &x))
    }
}

impl<B: Backend> OnnxNetwork for ResNet<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, _: [usize; 2]) -> Value {
        let maps = self.add_maps(graph, images);
        graph.average(&maps)
    }
}
