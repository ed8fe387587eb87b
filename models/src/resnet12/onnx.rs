//! [`ResNet12`] as nodes of an ONNX graph.

use burn::tensor::backend::Backend;

use super::{Block, ResNet12, SLOPE};
use crate::onnx::{Attribute, ConvShape, Graph, OnnxNetwork, Value, add_normalised};

impl<B: Backend> Block<B> {
    fn add_to(&self, graph: &mut Graph, x: &Value) -> Value {
        let (conv, norm) = &self.downsample;
        let shortcut = add_normalised(graph, conv, norm, x);
        let y = add_normalised(graph, &self.conv1, &self.bn1, x);
        let y = add_leaky_relu(graph, &y);
        let y = add_normalised(graph, &self.conv2, &self.bn2, &y);
        let y = add_leaky_relu(graph, &y);
        let y = add_normalised(graph, &self.conv3, &self.bn3, &y);
        let sum = graph.node("Add", &[&y, &shortcut], &[]);
        let pooled = graph.max_pool(&sum, ConvShape::square(2, 2, 0));
        add_leaky_relu(graph, &pooled)
    }
}

fn add_leaky_relu(graph: &mut Graph, x: &Value) -> Value {
    graph.node("LeakyRelu", &[x], &[("alpha", Attribute::Float(SLOPE as f32))])
}

impl<B: Backend> ResNet12<B> {
    /// Adds all but the means of the maps.
    pub(crate) fn add_maps(&self, graph: &mut Graph, images: &Value) -> Value {
        self.blocks().into_iter().fold(images.clone(), |x, block| block.add_to(graph, &x))
    }
}

impl<B: Backend> OnnxNetwork for ResNet12<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, _: [usize; 2]) -> Value {
        let maps = self.add_maps(graph, images);
        graph.average(&maps)
    }
}
