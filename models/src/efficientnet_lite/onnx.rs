//! [`EfficientNetLite`] as nodes of an ONNX graph.

use burn::tensor::backend::Backend;

use super::{Block, EfficientNetLite, RELU6};
use crate::onnx::{Graph, OnnxNetwork, Value, add_normalised, add_normalised_same};

impl<B: Backend> Block<B> {
    /// Maps of this height and width to those of the block, with their size.
    fn add_to(&self, graph: &mut Graph, x: &Value, size: [usize; 2]) -> (Value, [usize; 2]) {
        let mut y = x.clone();
        if let (Some(conv), Some(norm)) = (&self.expand_conv, &self.bn0) {
            y = add_normalised(graph, conv, norm, &y);
            y = graph.clip(&y, RELU6);
        }
        let (y, smaller) = add_normalised_same(graph, &self.depthwise_conv, &self.bn1, (&y, size));
        let y = graph.clip(&y, RELU6);
        let y = add_normalised(graph, &self.project_conv, &self.bn2, &y);
        match smaller == size && self.keeps_channels() {
            true => (graph.node("Add", &[&y, x], &[]), smaller),
            false => (y, smaller),
        }
    }

    fn keeps_channels(&self) -> bool {
        let first = self.expand_conv.as_ref().map(|conv| conv.weight.dims()[1]);
        let from = first.unwrap_or(self.depthwise_conv.weight.dims()[0]);
        from == self.project_conv.weight.dims()[0]
    }
}

impl<B: Backend> OnnxNetwork for EfficientNetLite<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, size: [usize; 2]) -> Value {
        let (stem, size) = add_normalised_same(graph, &self.conv_stem, &self.bn0, (images, size));
        let stem = graph.clip(&stem, RELU6);
        let blocks = self.blocks.iter();
        let (y, _) = blocks.fold((stem, size), |(x, size), block| block.add_to(graph, &x, size));
        let y = add_normalised(graph, &self.conv_head, &self.bn1, &y);
        let y = graph.clip(&y, RELU6);
        graph.average(&y)
    }
}
