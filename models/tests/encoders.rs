//! Encoders and their layers: weights from elsewhere, statistics, second derivatives.
#![recursion_limit = "256"]

use std::collections::{BTreeMap, HashMap};
use std::panic::catch_unwind;
use std::path::PathBuf;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param, RunningState};
use burn::optim::GradientsParams;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, TensorData, Tolerance};
use burn_store::ModuleSnapshot;
use fewshot_models::nn::{
    BatchNorm, BatchNormConfig, FilmConfig, Linear, LinearConfig, global_avg_pool, max_pool,
};
use fewshot_models::{
    BnStatistics, Conv4, Conv4Config, Downsampling, Encoder, Mlp, MlpConfig, Precision, Pretrained,
};
use safetensors::SafeTensors;
use tempfile::TempDir;

#[path = "encoders/any.rs"]
mod any;
#[path = "encoders/context/mod.rs"]
mod context;
#[path = "encoders/precision.rs"]
mod precision;
#[path = "encoders/second_derivatives.rs"]
mod second_derivatives;
#[path = "encoders/shapes.rs"]
mod shapes;
#[path = "encoders/statistics.rs"]
mod statistics;
#[path = "encoders/tasks.rs"]
mod tasks;
#[path = "encoders/weights_from_elsewhere.rs"]
mod weights_from_elsewhere;

type Once = Autodiff<Flex>;
type Twice = Autodiff<Once>;

/// A network with a value of its own for every parameter and running average.
fn small_conv4() -> Conv4<Flex> {
    let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
    Flex::seed(&Default::default(), 5);
    config.init(&Default::default())
}

fn uniform<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    let device = Default::default();
    B::seed(&device, seed);
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &device)
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

/// Parameters and running averages by name.
fn state<B: Backend>(module: &impl ModuleSnapshot<B>) -> BTreeMap<String, Vec<f32>> {
    let snapshots = module.collect(None, None, false).into_iter();
    let read = |data: TensorData| data.into_vec().unwrap();
    snapshots.map(|tensor| (tensor.full_path(), read(tensor.to_data().unwrap()))).collect()
}

fn running_only(state: &BTreeMap<String, Vec<f32>>) -> BTreeMap<String, Vec<f32>> {
    let running = state.iter().filter(|(name, _)| name.contains("running"));
    running.map(|(name, values)| (name.clone(), values.clone())).collect()
}

/// Equal up to `tolerance` times the largest value.
fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= tolerance * largest, "{what}[{index}] is {found}, not {expected}");
    }
}

#[test]
fn averages_of_images_embed_each_as_the_batch_embeds_all() {
    let images = uniform::<Flex, 4>(3, [6, 2, 8, 9]);
    let together = read(small_conv4().encode(images.clone(), BnStatistics::Batch));
    let network = small_conv4().with_averages_of(images.clone());
    let each = images.clone().chunk(6, 0).into_iter();
    let alone: Vec<_> =
        each.flat_map(|image| read(network.encode(image, BnStatistics::Running))).collect();
    assert_close("features", &alone, &together, 1e-5);
    // Later batches move the averages as far as they always do.
    let before = state(&network);
    network.encode(images * 3.0, BnStatistics::Track);
    let key = "blocks.0.norm.running_var";
    let moved = state(&network)[key][0] / before[key][0];
    assert!((moved - (0.9 + 0.1 * 9.0)).abs() < 1e-3, "{moved}");
}
