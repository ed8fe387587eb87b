//! Pretrained networks: published names, and the features that PyTorch computes.
#![recursion_limit = "256"]

#[path = "backbones/derivatives.rs"]
mod derivatives;
#[path = "backbones/draws.rs"]
mod draws;
#[path = "backbones/gradients.rs"]
mod gradients;
#[path = "backbones/named_otherwise.rs"]
mod named_otherwise;
#[path = "backbones/onnx.rs"]
mod onnx;
#[path = "backbones/other_networks.rs"]
mod other_networks;
#[path = "backbones/prefixes.rs"]
mod prefixes;
#[path = "backbones/training.rs"]
mod training;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_store::ModuleSnapshot;
use fewshot_models::{
    BnStatistics, EfficientNetLiteConfig, Encoder, Pretrained, ResNet12Config, ResNetConfig,
    VitConfig, WideResNetConfig,
};
use safetensors::tensor::{Dtype, TensorView};
use serde::Deserialize;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Golden {
    networks: HashMap<String, Network>,
    #[serde(rename = "dinov2-b14")]
    dinov2_b14: Vec<(String, Vec<usize>)>,
    interpolated: HashMap<String, Network>,
    alike: HashMap<String, Network>,
    gradients: Gradients,
    #[serde(rename = "published efficientnet-lite0")]
    published: Network,
}

#[derive(Deserialize)]
struct Network {
    #[serde(default)]
    parameters: Vec<(String, Vec<usize>)>,
    size: [usize; 2],
    features: Vec<f32>,
}

#[derive(Deserialize)]
struct Gradients {
    size: [usize; 2],
    running: HashMap<String, Vec<f32>>,
    batch: HashMap<String, Vec<f32>>,
}

fn golden() -> Golden {
    let text = fs::read_to_string(folder().join("backbones.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// `shift + scale * values` of golden/backbones.py. In plain numbers and a loop: the largest networks have a
/// hundred million parameters, and tests are not optimised.
fn values(name: &str, count: usize, [shift, scale]: [f32; 2]) -> Vec<f32> {
    const WORD: u64 = 1 << 32;
    let key = name
        .bytes()
        .fold(0x811C_9DC5u32, |key, byte| (key ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let (key, mut out, mut index) = (u64::from(key), vec![0.0; count], 0);
    let to = out.as_mut_slice();
    while index < count {
        let x = (index as u64 + key) % WORD;
        let x = (x ^ (x >> 16)) * 0x7FEB_352D % WORD;
        let x = (x ^ (x >> 15)) * 0x846C_A68B % WORD;
        let x = x ^ (x >> 16);
        to[index] = shift + scale * (x as f64 / 2_147_483_648.0 - 1.0) as f32;
        index += 1;
    }
    out
}

/// `drawn` of golden/backbones.py.
fn drawn(name: &str, shape: &[usize]) -> Vec<f32> {
    let last = name.rsplit('.').next().unwrap();
    let range = match (last, shape) {
        ("running_var", _) => [1.0, 0.5],
        ("running_mean" | "bias" | "in_proj_bias", _) => [0.0, 0.1],
        ("gamma", _) | ("weight", [_]) => [1.0, 0.3],
        (_, [fan]) => [0.0, (3.0 / *fan as f64).sqrt() as f32],
        (_, [_, rest @ ..]) => [0.0, (3.0 / rest.iter().product::<usize>() as f64).sqrt() as f32],
        (_, []) => unreachable!("no parameter is a scalar"),
    };
    values(name, shape.iter().product(), range)
}

fn images<B: Backend>([height, width]: [usize; 2]) -> Tensor<B, 4> {
    let shape = [2, 3, height, width];
    let values = values("images", shape.iter().product(), [0.0, 1.0]);
    Tensor::from_data(TensorData::new::<f32, _>(values, shape), &Default::default())
}

/// A safetensors file with these parameters, under names with a prefix.
fn file(folder: &TempDir, prefix: &str, parameters: &[(String, Vec<usize>)]) -> PathBuf {
    file_of(folder, &tensors(prefix, parameters))
}

/// These parameters under names with a prefix.
fn tensors(prefix: &str, parameters: &[(String, Vec<usize>)]) -> Tensors {
    let named = |(name, shape): &(String, Vec<usize>)| {
        (format!("{prefix}{name}"), shape.clone(), drawn(name, shape))
    };
    parameters.iter().map(named).collect()
}

/// A tensor's name, shape and values.
type Tensors = Vec<(String, Vec<usize>, Vec<f32>)>;

fn file_of(folder: &TempDir, tensors: &Tensors) -> PathBuf {
    let data: Vec<_> = tensors
        .iter()
        .map(|(_, shape, values)| TensorData::new(values.clone(), shape.clone()))
        .collect();
    let views = tensors.iter().zip(&data).map(|((name, shape, _), data)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data.as_bytes()).unwrap())
    });
    let path = folder.path().join("weights.safetensors");
    safetensors::serialize_to_file(views, None, &path).unwrap();
    path
}

fn assert_close(name: &str, found: Tensor<Flex, 2>, wanted: &[f32]) {
    assert_within(1e-4, name, &found.into_data().into_vec::<f32>().unwrap(), wanted);
}

/// Equal up to a share of the largest value.
fn assert_within(share: f32, name: &str, found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    let largest = wanted.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let off = (found - wanted).abs();
        assert!(off <= share * largest, "{name}[{index}] is {found}, not {wanted} of {largest}");
    }
}

/// Loads the parameters under their published names and compares the features.
fn check<E: Encoder<Flex> + Pretrained<Flex>>(name: &str, features: usize, encoder: E) {
    let golden = golden();
    let Network { parameters, size, features: wanted } = &golden.networks[name];
    let folder = TempDir::new().unwrap();
    let encoder = encoder.load_weights(&file(&folder, "", parameters)).unwrap();
    let found = encoder.encode(images(*size), BnStatistics::Running);
    assert_eq!(found.dims(), [2, features], "{name}");
    assert_close(name, found, wanted);
}

#[test]
fn resnet12_has_pytorchs_features() {
    let config = ResNet12Config::new();
    check("resnet12", config.features(), config.init(&Default::default()));
}

#[test]
fn resnets_have_torchvisions_features() {
    for (name, config) in [
        ("resnet18", ResNetConfig::resnet18()),
        ("resnet34", ResNetConfig::resnet34()),
        ("resnet50", ResNetConfig::resnet50()),
    ] {
        check(name, config.features(), config.init(&Default::default()));
    }
}

#[test]
fn wide_resnet_has_pytorchs_features() {
    let config = WideResNetConfig::new();
    check("wide-resnet-28-10", config.features(), config.init(&Default::default()));
}

#[test]
fn efficientnet_lite_has_pytorchs_features() {
    let config = EfficientNetLiteConfig::new();
    check("efficientnet-lite0", config.features(), config.init(&Default::default()));
}

#[test]
fn dinov2_has_timms_features_of_its_own_grid() {
    let config = VitConfig { grid: 4, ..VitConfig::dinov2_s14() };
    check("dinov2-s14", config.features(), config.init(&Default::default()));
}

#[test]
fn clip_has_open_clips_features() {
    let config = VitConfig::clip_b32();
    check("clip-b32", config.features(), config.init(&Default::default()));
}

fn with_registers(mut parameters: Vec<(String, Vec<usize>)>) -> Vec<(String, Vec<usize>)> {
    let width = parameters.iter().find(|(name, _)| name == "cls_token").unwrap().1[2];
    parameters.push(("register_tokens".to_owned(), vec![1, 4, width]));
    parameters
}

/// Loads the parameters of a network that has those of another, and compares the features.
fn check_alike(name: &str, config: VitConfig, parameters: &[(String, Vec<usize>)]) {
    let Network { size, features, .. } = &golden().alike[name];
    let folder = TempDir::new().unwrap();
    let network = config.init::<Flex>(&Default::default());
    let network = network.load_weights(&file(&folder, "", parameters)).unwrap();
    assert_close(name, network.encode(images(*size), BnStatistics::Running), features);
}

#[test]
fn dinov2_with_registers_has_timms_features() {
    let parameters = golden().networks.remove("dinov2-s14").unwrap().parameters;
    // The grid of 4 x 4 is the file's.
    check_alike("dinov2-s14-reg", VitConfig::dinov2_s14_reg(), &with_registers(parameters));
}

#[test]
fn clip_with_gelu_has_open_clips_features() {
    let parameters = golden().networks.remove("clip-b32").unwrap().parameters;
    check_alike("clip-b32-gelu", VitConfig::clip_b32_gelu(), &parameters);
}

/// Features of images of another size than that of training: `dinov2_elsewhere` of golden/backbones.py.
fn check_interpolated(name: &str, config: VitConfig, parameters: &[(String, Vec<usize>)]) {
    let Network { size, features: wanted, .. } = &golden().interpolated[name];
    let tensors = parameters.iter().map(|(name, shape)| {
        let drawn = match name.as_str() {
            "pos_embed" => values(name, shape.iter().product(), [0.0, 1.0]),
            _ => drawn(name, shape),
        };
        (name.clone(), shape.clone(), drawn)
    });
    let folder = TempDir::new().unwrap();
    let network = config.init::<Flex>(&Default::default());
    // All that the network has must be there for it to load, and there is nothing else.
    assert_eq!(network.collect(None, None, false).len(), parameters.len(), "{name}");
    let network = network.load_weights(&file_of(&folder, &tensors.collect())).unwrap();
    let found = network.encode(images(*size), BnStatistics::Running);
    assert_close(name, found.reshape([-1, 16]).narrow(1, 0, 1), wanted);
}

#[test]
fn dinov2_has_pytorchs_features_where_positions_are_interpolated() {
    let mut parameters = golden().networks.remove("dinov2-s14").unwrap().parameters;
    let positions = parameters.iter_mut().find(|(name, _)| name == "pos_embed").unwrap();
    positions.1 = vec![1, 1 + 37 * 37, 384];
    check_interpolated("dinov2-s14", VitConfig::dinov2_s14(), &parameters);
}

#[test]
fn dinov2_with_registers_has_pytorchs_features_where_positions_are_interpolated() {
    let mut parameters = golden().networks.remove("dinov2-s14").unwrap().parameters;
    let positions = parameters.iter_mut().find(|(name, _)| name == "pos_embed").unwrap();
    positions.1 = vec![1, 1 + 37 * 37, 384];
    let small = with_registers(parameters);
    check_interpolated("dinov2-s14-reg", VitConfig::dinov2_s14_reg(), &small);
    let base = with_registers(golden().dinov2_b14);
    check_interpolated("dinov2-b14-reg", VitConfig::dinov2_b14_reg(), &base);
}

/// Positions of the grid of 4 x 4 in a network for 37 x 37, which the images of 4 x 4 patches take as they are.
#[test]
fn dinov2_takes_positions_that_were_trained_at_another_size() {
    let config = VitConfig::dinov2_s14();
    check("dinov2-s14", config.features(), config.init(&Default::default()));
}

#[test]
fn dinov2_b14_has_the_published_parameters_and_pytorchs_features() {
    check_interpolated("dinov2-b14", VitConfig::dinov2_b14(), &golden().dinov2_b14);
}

/// The published weights are not in the repository; where they are is asked by an environment variable.
#[test]
#[ignore = "needs the weights of EfficientNet-Lite0 in FEWSHOT_LITE0"]
fn efficientnet_lite_reads_the_published_weights() {
    let file = std::env::var_os("FEWSHOT_LITE0").expect("FEWSHOT_LITE0 is the file of weights");
    let network = EfficientNetLiteConfig::new().init::<Flex>(&Default::default());
    let network = network.load_weights(Path::new(&file)).unwrap();
    let Network { size, features, .. } = golden().published;
    let found = network.encode(images(size), BnStatistics::Running);
    assert_close("published", found, &features);
}

#[test]
#[ignore = "needs the weights of EfficientNet-Lite0 in FEWSHOT_LITE0"]
fn cut_files_of_published_weights_name_a_parameter() {
    let file = std::env::var_os("FEWSHOT_LITE0").expect("FEWSHOT_LITE0 is the file of weights");
    let whole = fs::read(file).unwrap();
    let folder = TempDir::new().unwrap();
    let cut = folder.path().join("cut.pth");
    for length in [1000, whole.len() / 2, whole.len() - 128, whole.len() - 1] {
        fs::write(&cut, &whole[..length]).unwrap();
        let network = EfficientNetLiteConfig::new().init::<Flex>(&Default::default());
        let error = network.load_weights(&cut).err().unwrap().to_string();
        let part = if length == 1000 { "it ends in the middle" } else { "the parameter " };
        assert!(error.contains(part), "{error}");
    }
}

/// Weights whose channels lie last, in PyTorch's file format of today and in that before 1.6.
#[test]
fn tensors_of_a_transposed_layout_are_read_in_order() {
    let config = ResNet12Config::new().with_widths([2, 3, 4, 5]);
    for name in ["transposed.pt", "transposed_legacy.pt"] {
        let network = config.init::<Flex>(&Default::default());
        let network = network.load_weights(&folder().join(name)).unwrap();
        let mut seen = 0;
        for tensor in network.collect(None, None, false) {
            let (path, shape) = (tensor.full_path(), tensor.shape.to_vec());
            let norm = path.contains("bn") || path.contains("downsample.1");
            let published = match norm {
                true => path.replace("gamma", "weight").replace("beta", "bias"),
                false => path.clone(),
            };
            let found: Vec<f32> = tensor.to_data().unwrap().into_vec().unwrap();
            assert_eq!(found, drawn(&published, &shape), "{path} of {name}");
            seen += 1;
        }
        assert_eq!(seen, 80);
    }
}

#[test]
fn segments_of_resnet12_are_its_features() {
    let network =
        ResNet12Config::new().with_widths([4, 6, 8, 10]).init::<Flex>(&Default::default());
    let mut x = images([32, 48]);
    let wanted = network.encode(x.clone(), BnStatistics::Batch);
    for index in 0..Encoder::<Flex>::segments(&network) {
        x = network.forward_segment(index, x, BnStatistics::Batch);
    }
    assert_close("segments", x.flatten(1, 3), &wanted.into_data().into_vec::<f32>().unwrap());
}

/// As many pixels are dropped as asked for, in squares, and what is left has the same sum on average.
#[test]
fn dropped_blocks_are_squares_of_the_rate() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    B::seed(&device, 3);
    let ones = Tensor::<B, 4>::ones([64, 16, 12, 12], &device);
    for size in [1, 3] {
        let kept: Vec<f32> =
            fewshot_models::nn::drop_block(ones.clone(), 0.2, size).into_data().into_vec().unwrap();
        let zeros = kept.iter().filter(|x| **x == 0.0).count() as f64 / kept.len() as f64;
        // Squares overlap.
        assert!((zeros - 0.2).abs() < 0.03, "{zeros} of squares of {size}");
        let mean = kept.iter().map(|x| f64::from(*x)).sum::<f64>() / kept.len() as f64;
        assert!((mean - 1.0).abs() < 1e-4, "{mean}");
        let in_square = |at: usize| {
            let (row, column) = (at / 12 % 12, at % 12);
            let zero = |row: usize, column: usize| kept[at / 144 * 144 + row * 12 + column] == 0.0;
            (row.saturating_sub(size - 1)..=row.min(12 - size)).any(|row| {
                (column.saturating_sub(size - 1)..=column.min(12 - size))
                    .any(|column| (0..size).all(|i| (0..size).all(|j| zero(row + i, column + j))))
            })
        };
        let dropped = (0..kept.len()).filter(|at| kept[*at] == 0.0);
        assert!(dropped.into_iter().all(in_square), "squares of {size}");
    }
    let same = fewshot_models::nn::drop_block(ones.clone(), 0.0, 5);
    same.into_data().assert_eq(&ones.into_data(), true);
}
