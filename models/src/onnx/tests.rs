//! Graphs of networks are whole, and have no operator that came after version 17.

use std::collections::HashSet;

use burn::backend::Flex;
use prost::Message;

use super::schema::ModelProto;
use super::{ElementType, Graph, OnnxNetwork};
use crate::{EncoderConfig, OnImages, Readout, VitConfig, VitFamily};

const OPERATORS: [&str; 23] = [
    "Add",
    "BatchNormalization",
    "Clip",
    "Conv",
    "Div",
    "Erf",
    "Flatten",
    "Gather",
    "GlobalAveragePool",
    "Identity",
    "LayerNormalization",
    "LeakyRelu",
    "MatMul",
    "MaxPool",
    "Mul",
    "Pad",
    "Relu",
    "Reshape",
    "Sigmoid",
    "Softmax",
    "Split",
    "Sub",
    "Transpose",
];

fn vit(family: VitFamily) -> EncoderConfig {
    let network = VitConfig::new(family, 8, 2, 8, 1, 2).with_projection(5);
    let (normalization, readout) = (None, Readout::Average);
    EncoderConfig::Vit(OnImages { image: [3, 16, 16], normalization, readout, network })
}

#[test]
fn every_value_is_there_before_it_is_taken() {
    let names = ["conv4", "resnet10", "resnet12", "efficientnet-lite0"];
    let named = names.map(|name| EncoderConfig::named(name, [3, 32, 32]).unwrap());
    let vits = [vit(VitFamily::DinoV2), vit(VitFamily::Clip)];
    for config in named.into_iter().chain(vits) {
        let (name, [channels, height, width]) = (config.name(), config.image());
        let encoder = config.init::<Flex>(&Default::default());
        let mut graph = Graph::new(&name);
        let images = graph.input("images", ElementType::F32, &[channels, height, width]);
        let features = encoder.add_to(&mut graph, &images, [height, width]);
        graph.output(&features, "features", &[config.features()]);
        let file = ModelProto::decode(&*graph.into_file(&[]).unwrap()).unwrap();
        let graph = file.graph.unwrap();
        let mut there: HashSet<_> = graph.initializer.iter().map(|of| of.name.clone()).collect();
        assert_eq!(there.len(), graph.initializer.len(), "{name}");
        there.insert("images".to_owned());
        for node in &graph.node {
            assert!(OPERATORS.contains(&&*node.op_type), "{name}: {}", node.op_type);
            assert!(node.input.iter().all(|input| there.contains(input)), "{name}: {node:?}");
            assert!(node.output.iter().all(|of| there.insert(of.clone())), "{name}: {node:?}");
        }
        assert!(there.contains("features"), "{name}");
    }
}
