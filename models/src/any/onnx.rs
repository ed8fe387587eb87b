//! Any encoder as nodes of an ONNX graph.

use burn::tensor::backend::Backend;

use super::{AnyEncoder, Network, Normalization, with_network};
use crate::Readout;
use crate::onnx::{Graph, OnnxNetwork, Value};

impl Normalization {
    /// Adds the normalisation of images `[n, 3, h, w]`.
    pub fn add_to(&self, graph: &mut Graph, images: &Value) -> Value {
        let mean = graph.constant("mean", &[1, 3, 1, 1], &self.mean);
        let deviation = graph.constant("deviation", &[1, 3, 1, 1], &self.deviation);
        let centred = graph.node("Sub", &[images, &mean], &[]);
        graph.node("Div", &[&centred, &deviation], &[])
    }
}

impl<B: Backend> OnnxNetwork for AnyEncoder<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, size: [usize; 2]) -> Value {
        let images = match &self.normalization {
            Some(normalization) => normalization.add_to(graph, images),
            None => images.clone(),
        };
        let maps = match &self.network {
            _ if self.readout == Readout::Average => None,
            Network::ResNet12(network) => Some(network.add_maps(graph, &images)),
            Network::ResNet(network) => Some(network.add_maps(graph, &images)),
            Network::WideResNet(network) => Some(network.add_maps(graph, &images)),
            Network::Conv4(_) | Network::EfficientNetLite(_) | Network::Vit(_) => None,
        };
        match maps {
            Some(maps) => graph.flatten(&maps),
            None => with_network!(&self.network, network => network.add_to(graph, &images, size)),
        }
    }
}
