//! Networks as ONNX files, with the embeddings of some images for `tests/onnx/check.py` to compare.

use std::env;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Distribution;
use fewshot_models::onnx::{ElementType, Graph, OnnxNetwork};
use fewshot_models::{
    Conv4Config, EncoderConfig, Normalization, OnImages, Preprocessing, Readout, VitFamily,
};

use super::*;

fn on<C>(network: C, image: [usize; 3]) -> OnImages<C> {
    OnImages { image, normalization: None, readout: Readout::Average, network }
}

/// Small networks of every kind, and of every setting that a graph depends on.
fn small() -> Vec<(String, EncoderConfig)> {
    let named = |name, image| EncoderConfig::named(name, image).unwrap();
    let resnet = ResNetConfig::new([1, 2, 1, 1], true).with_width(8);
    let wide = WideResNetConfig::new().with_blocks(2).with_width(2);
    let vit = |family| VitConfig::new(family, 8, 3, 24, 2, 3).with_projection(10);
    let registers = vit(VitFamily::DinoV2).with_registers(2);
    let imagenet = Normalization::from(Preprocessing::torchvision());
    let networks = [
        ("conv4", Conv4Config::new([3, 21, 16]).with_channels(8).into()),
        ("conv4-strided", Conv4Config::omniglot_strided().into()),
        ("conv4-context", Conv4Config::new([1, 16, 16]).with_context(5).into()),
        ("conv6", Conv4Config::new([3, 20, 20]).with_blocks(6).with_halve_every(2).into()),
        ("resnet10", named("resnet10", [1, 35, 40]).with_readout(Readout::Flatten)),
        ("resnet10-of-colour", named("resnet10", [3, 64, 64]).with_normalization(Some(imagenet))),
        ("bottlenecks", EncoderConfig::ResNet(on(resnet, [3, 40, 33]))),
        ("resnet12", named("resnet12", [3, 42, 36])),
        ("resnet12-flat", named("resnet12", [3, 33, 32]).with_readout(Readout::Flatten)),
        ("wide-resnet", EncoderConfig::WideResNet(on(wide, [3, 18, 21]))),
        ("efficientnet-lite0", named("efficientnet-lite0", [3, 107, 96])),
        ("dinov2", EncoderConfig::Vit(on(vit(VitFamily::DinoV2), [3, 24, 24]))),
        ("dinov2-of-another-size", EncoderConfig::Vit(on(vit(VitFamily::DinoV2), [3, 16, 40]))),
        ("dinov2-registers", EncoderConfig::Vit(on(registers, [3, 32, 16]))),
        ("clip", EncoderConfig::Vit(on(vit(VitFamily::Clip), [3, 24, 24]))),
        ("clip-gelu", EncoderConfig::Vit(on(vit(VitFamily::ClipGelu), [3, 24, 32]))),
    ];
    networks.map(|(name, config)| (name.to_owned(), config)).to_vec()
}

/// The networks that have a name, in their own size.
fn large() -> Vec<(String, EncoderConfig)> {
    let config = |name| {
        let config = EncoderConfig::named(name, [3, 84, 84]).unwrap();
        let side = config.preprocessing().map_or(84, |how| how.crop);
        (name.to_owned(), config.for_images([3, side, side]).unwrap())
    };
    EncoderConfig::names().map(config).collect()
}

/// Moves gains, shifts and tokens from where they begin: a scale of 1e-5 hides what it scales.
struct Moved;

impl ModuleMapper<Flex> for Moved {
    fn map_float<const D: usize>(
        &mut self,
        param: Param<Tensor<Flex, D>>,
    ) -> Param<Tensor<Flex, D>> {
        match D {
            1 | 3 => param.map(|value| {
                let noise = value.random_like(Distribution::Normal(0.0, 0.2));
                value + noise
            }),
            _ => param,
        }
    }
}

/// Writes the networks that `tests/onnx/check.py` compares into the folder `FEWSHOT_ONNX`: small ones, or with
/// `FEWSHOT_ONNX_LARGE` all that have a name.
#[test]
#[ignore = "writes files for tests/onnx/check.py"]
fn networks_and_their_embeddings_are_written() {
    let folder = PathBuf::from(env::var("FEWSHOT_ONNX").expect("FEWSHOT_ONNX is a folder"));
    fs::create_dir_all(&folder).unwrap();
    let device = Default::default();
    Flex::seed(&device, 7);
    let networks = if env::var("FEWSHOT_ONNX_LARGE").is_ok() { large() } else { small() };
    for (name, config) in networks {
        config.check().unwrap();
        let image @ [channels, height, width] = config.image();
        let shape = [3, channels, height, width];
        let images = values("images", shape.iter().product(), [0.5, 0.5]);
        let images = TensorData::new(images, shape);
        let tensor = || Tensor::<Flex, 4>::from_data(images.clone(), &device);
        let encoder = config.init::<Flex>(&device).map(&mut Moved).with_averages_of(tensor());
        let embeddings = encoder.encode(tensor(), BnStatistics::Running).into_data();
        let finite = embeddings.iter::<f32>().all(f32::is_finite);
        assert!(finite, "{name}");

        let mut graph = Graph::new(&name);
        let input = graph.input("images", ElementType::F32, &image);
        let features = encoder.add_to(&mut graph, &input, [height, width]);
        graph.output(&features, "embeddings", &[config.features()]);
        fs::write(folder.join(format!("{name}.onnx")), graph.into_file(&[]).unwrap()).unwrap();
        let view = |data| TensorView::new(Dtype::F32, shape_of(data), data.as_bytes()).unwrap();
        let views = [("images", view(&images)), ("embeddings", view(&embeddings))];
        let file = folder.join(format!("{name}.safetensors"));
        safetensors::serialize_to_file(views, None, &file).unwrap();
    }
}

fn shape_of(data: &TensorData) -> Vec<usize> {
    data.shape.to_vec()
}
