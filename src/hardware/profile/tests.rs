use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::Tensor;
use fewshot_models::nn::{Linear, LinearConfig};
use fewshot_models::{Classifier, Conv4Config, MlpConfig};

use super::*;
use crate::optim::{Adam, AdamW, Lamb, Sgd};

type B = Autodiff<Flex>;

fn profile<B: Backend, M: Module<B>>(module: &M) -> ModelProfile {
    ModelProfile::of::<B, M>(module)
}

#[test]
fn a_conv4_is_the_one_counted_by_hand() {
    let device = Default::default();
    let encoder = Conv4Config::mini_imagenet().init::<B>(&device);
    let profile = profile::<B, _>(&encoder);
    let trained = (9 * 3 * 64 + 3 * 9 * 64 * 64) + 4 * (64 + 64 + 64);
    assert_eq!(profile.trainable_values(), trained);
    assert_eq!(profile.trainable(), MemoryFigure::exact(4 * trained));
    let averages = 4 * (64 + 64);
    assert_eq!(profile.bytes(), MemoryFigure::exact(4 * (trained + averages)));
    assert_eq!(profile.parameters.len(), 4 * 6);
    let first = &profile.parameters[0];
    assert_eq!(first.path, "blocks.0.conv.weight");
    assert_eq!((first.values, first.bytes), (27 * 64, Bytes(4 * 27 * 64)));
}

#[test]
fn running_averages_are_not_trained_on_any_backend() {
    let device = Default::default();
    let encoder = Conv4Config::omniglot().init::<B>(&device);
    let on_graph = profile::<B, _>(&encoder);
    assert_eq!(on_graph, profile::<Flex, _>(&encoder.valid()));
    let frozen: Vec<_> = on_graph.parameters.iter().filter(|p| !p.trainable).collect();
    assert_eq!(frozen.len(), 8);
    assert!(frozen.iter().all(|p| p.path.contains("running_")));
}

#[test]
fn a_head_is_counted_by_its_name() {
    let device = Default::default();
    let config = Conv4Config::omniglot();
    let network = Classifier::new(config.init::<B>(&device), 64, 5, &device);
    let profile = profile::<B, _>(&network);
    assert_eq!(profile.trainable_in("head"), MemoryFigure::exact(4 * (64 * 5 + 5)));
    assert_eq!(profile.trainable_in("hea"), MemoryFigure::exact(0));
    assert_eq!(profile.trainable_in("encoder.blocks.3").bytes.0, 4 * (9 * 64 * 64 + 3 * 64));
}

/// Two layers with one weight, and a frozen vector.
#[derive(Module, Debug)]
struct Tied<B: Backend> {
    one: Linear<B>,
    other: Linear<B>,
    frozen: Param<Tensor<B, 1>>,
}

#[test]
fn a_tensor_in_two_places_is_counted_once_and_a_frozen_one_is_not_trained() {
    let device = Default::default();
    let one: Linear<B> = LinearConfig::new(3, 4).init(&device);
    let other = one.clone();
    let frozen = Param::from_tensor(Tensor::zeros([7], &device)).set_require_grad(false);
    let profile = profile::<B, _>(&Tied { one, other, frozen });
    assert_eq!(profile.bytes(), MemoryFigure::exact(4 * (12 + 4 + 7)));
    assert_eq!(profile.trainable(), MemoryFigure::exact(4 * (12 + 4)));
}

#[test]
fn a_module_is_drawn_and_then_has_the_values_it_was_counted_with() {
    let layer: Linear<B> = LinearConfig::new(3, 4).init(&Default::default());
    assert!(!layer.weight.is_initialized());
    profile::<B, _>(&layer);
    let clone = layer.clone();
    clone.weight.val().into_data().assert_eq(&layer.weight.val().into_data(), true);
}

fn layer() -> Linear<B> {
    LinearConfig::new(300, 200).with_bias(false).init(&Default::default())
}

/// Length of what an optimizer has recorded after a step.
fn recorded<O: Optimizer<Linear<B>, B>>(mut optimizer: O) -> u64 {
    let layer = layer();
    let x = Tensor::ones([2, 300], &Default::default());
    let gradients = GradientsParams::from_grads(layer.forward(x).sum().backward(), &layer);
    optimizer.step(0.1, layer, gradients);
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    Recorder::<B>::record(&recorder, optimizer.to_record(), ()).unwrap().len() as u64
}

#[test]
fn optimizers_remember_as_much_as_is_said() {
    let found = [
        (OptimizerKind::Sgd, recorded(Sgd::new().init())),
        (OptimizerKind::Momentum, recorded(Sgd::new().with_momentum(0.9).init())),
        (OptimizerKind::Adam, recorded(Adam::new().init())),
        (OptimizerKind::AdamW, recorded(AdamW::new().init())),
        (OptimizerKind::Lamb, recorded(Lamb::new().init())),
    ];
    let profile = profile::<B, _>(&layer());
    for (kind, recorded) in found {
        // A record has names and shapes besides.
        let said = profile.optimizer_state(kind).bytes.0;
        assert!((said..said + 1000).contains(&recorded), "{kind:?}: {said}, recorded {recorded}");
    }
}

#[test]
fn a_profile_reads_back() {
    let mlp = MlpConfig::new(2).with_layers(vec![3]).init::<B>(&Default::default());
    let profile = profile::<B, _>(&mlp);
    let json = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<ModelProfile>(&json).unwrap(), profile);
}
