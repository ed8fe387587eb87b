//! [`WideResNet`] as nodes of an ONNX graph.

use burn::tensor::backend::Backend;

use super::{Block, WideResNet};
use crate::nn::BatchNorm;
use crate::onnx::{Attribute, Graph, OnnxNetwork, Value, add_convolution};

/// Batch-norm by running averages and ReLU, before a convolution.
fn add_active<B: Backend>(graph: &mut Graph, norm: &BatchNorm<B>, x: &Value) -> Value {
    let gain = graph.tensor("gain", norm.gamma.val());
    let shift = graph.tensor("shift", norm.beta.val());
    let mean = graph.tensor("mean", norm.running_mean.value());
    let variance = graph.tensor("variance", norm.running_var.value());
    let epsilon = [("epsilon", Attribute::Float(norm.epsilon as f32))];
    let y = graph.node("BatchNormalization", &[x, &gain, &shift, &mean, &variance], &epsilon);
    graph.node("Relu", &[&y], &[])
}

impl<B: Backend> Block<B> {
    fn add_to(&self, graph: &mut Graph, x: &Value) -> Value {
        let active = add_active(graph, &self.bn1, x);
        let shortcut = match &self.shortcut {
            Some(layer) => add_convolution(graph, layer, &active),
            None => x.clone(),
        };
        let y = add_convolution(graph, &self.conv1, &active);
        let y = add_active(graph, &self.bn2, &y);
        let y = add_convolution(graph, &self.conv2, &y);
        graph.node("Add", &[&y, &shortcut], &[])
    }
}

impl<B: Backend> WideResNet<B> {
    /// Adds all but the means of the maps.
    pub(crate) fn add_maps(&self, graph: &mut Graph, images: &Value) -> Value {
        let stem = add_convolution(graph, &self.conv1, images);
        let y = self.blocks().fold(stem, |x, block| block.add_to(graph, &x));
        add_active(graph, &self.bn1, &y)
    }
}

impl<B: Backend> OnnxNetwork for WideResNet<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, _: [usize; 2]) -> Value {
        let maps = self.add_maps(graph, images);
        graph.average(&maps)
    }
}
