//! Graphs of networks are whole, and have no operator that came after version 17.

use std::collections::HashSet;

use burn::backend::Flex;
use prost::Message;

use super::schema::ModelProto;
use super::{ElementType, Graph, OnnxNetwork};
use crate::{
    Conv4Config, EfficientNetLiteConfig, EncoderConfig, OnImages, Readout, ResNet12Config,
    ResNetConfig, VitConfig, VitFamily, WideResNetConfig,
};

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

fn on<C>(network: C) -> OnImages<C> {
    OnImages { image: [3, 32, 32], normalization: None, readout: Readout::Average, network }
}

fn vit(family: VitFamily) -> EncoderConfig {
    EncoderConfig::Vit(on(VitConfig::new(family, 8, 4, 8, 1, 2).with_projection(5)))
}

#[test]
fn every_value_is_there_before_it_is_taken() {
    let bottlenecks = ResNetConfig::new([1; 4], true).with_width(4);
    for config in [
        Conv4Config::new([3, 32, 32]).with_channels(4).into(),
        EncoderConfig::ResNet(on(bottlenecks)),
        EncoderConfig::ResNet12(on(ResNet12Config::new().with_widths([4; 4]))),
        EncoderConfig::WideResNet(on(WideResNetConfig::new().with_blocks(2).with_width(1))),
        EncoderConfig::EfficientNetLite(on(EfficientNetLiteConfig::new())),
        vit(VitFamily::DinoV2),
        vit(VitFamily::Clip),
    ] {
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
