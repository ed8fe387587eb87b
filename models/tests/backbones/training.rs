//! Losses of training, step after step, beside those of PyTorch.

use std::collections::HashMap;
use std::fs;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, ModuleDisplay, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Int, Tensor, TensorData};
use fewshot_models::{
    BnStatistics, Classifier, EfficientNetLiteConfig, Encoder, Pretrained, ResNet12Config,
    ResNetConfig, VitConfig, VitFamily, WideResNetConfig,
};
use serde::Deserialize;
use tempfile::TempDir;

use super::{drawn, file, folder, values};

type B = Autodiff<Flex>;

/// What golden/training.py writes.
#[derive(Deserialize)]
struct Golden {
    batch: usize,
    classes: usize,
    cases: HashMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    parameters: Vec<(String, Vec<usize>)>,
    features: usize,
    side: usize,
    optimizer: Rule,
    losses: Vec<f64>,
    trained: f64,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Rule {
    Sgd { rate: f64, momentum: f64, decay: f32 },
    Adam { rate: f64 },
}

/// Share of a loss that ours may differ by.
const TOLERANCE: f64 = 1e-3;

fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

/// The network beneath a classifier with the golden head.
fn classifier<E: Encoder<B>>(encoder: E, features: usize, classes: usize) -> Classifier<B, E> {
    let mut classifier = Classifier::new(encoder, features, classes, &Default::default());
    let weight = tensor(drawn("head.weight", &[classes, features]), [classes, features]);
    classifier.head.weight = Param::from_tensor(weight.transpose());
    let bias = tensor(drawn("head.bias", &[classes]), [classes]);
    classifier.head.bias = Some(Param::from_tensor(bias));
    classifier
}

/// One batch, and its labels.
struct Batch {
    images: Tensor<B, 4>,
    labels: Tensor<B, 1, Int>,
}

impl Batch {
    fn loss<E: Encoder<B>>(
        &self,
        network: &Classifier<B, E>,
        statistics: BnStatistics,
    ) -> Tensor<B, 1> {
        let logits = network.forward(self.images.clone(), statistics);
        let loss = CrossEntropyLossConfig::new().init(&self.images.device());
        loss.forward(logits, self.labels.clone())
    }
}

/// The trained network, after each loss on the way has been compared.
fn train<E: Encoder<B> + AutodiffModule<B, InnerModule: ModuleDisplay>>(
    mut network: Classifier<B, E>,
    mut optimizer: impl Optimizer<Classifier<B, E>, B>,
    rate: f64,
    batch: &Batch,
    losses: &[f64],
) -> Classifier<B, E> {
    for (step, expected) in losses.iter().enumerate() {
        let loss = batch.loss(&network, BnStatistics::Track);
        assert_same(&format!("the loss of step {step}"), loss.clone(), *expected);
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(rate, network, gradients);
    }
    network
}

fn assert_same(name: &str, loss: Tensor<B, 1>, expected: f64) {
    let loss = f64::from(loss.into_scalar());
    let off = (loss / expected - 1.0).abs();
    assert!(off < TOLERANCE, "{name} is {loss}, not {expected}");
}

fn assert_trains_as_pytorch<E>(name: &str, encoder: E)
where
    E: Encoder<B> + Pretrained<B> + AutodiffModule<B, InnerModule: ModuleDisplay>,
{
    let text = fs::read_to_string(folder().join("training.json")).unwrap();
    let Golden { batch, classes, mut cases } = serde_json::from_str(&text).unwrap();
    let case = cases.remove(name).unwrap();
    let folder = TempDir::new().unwrap();
    let encoder = encoder.load_weights(&file(&folder, "", &case.parameters)).unwrap();
    let network = classifier(encoder, case.features, classes);
    let shape = [batch, 3, case.side, case.side];
    let labels: Vec<i32> = (0..batch).map(|index| (index % classes) as i32).collect();
    let batch = Batch {
        images: tensor(values("images", shape.iter().product(), [0.0, 1.0]), shape),
        labels: Tensor::from_ints(labels.as_slice(), &Default::default()),
    };
    let trained = match case.optimizer {
        Rule::Sgd { rate, momentum, decay } => {
            let momentum = MomentumConfig::new().with_momentum(momentum).with_dampening(0.0);
            let sgd = SgdConfig::new()
                .with_momentum(Some(momentum))
                .with_weight_decay(Some(WeightDecayConfig::new(decay)));
            train(network, sgd.init(), rate, &batch, &case.losses)
        }
        Rule::Adam { rate } => {
            let adam = AdamConfig::new().with_epsilon(1e-8);
            train(network, adam.init(), rate, &batch, &case.losses)
        }
    };
    let loss = batch.loss(&trained, BnStatistics::Running);
    assert_same("the loss by running averages", loss, case.trained);
}

#[test]
fn resnet12_has_pytorchs_losses() {
    let config = ResNet12Config::new().with_widths([6, 8, 10, 12]);
    assert_trains_as_pytorch("resnet12", config.init(&Default::default()));
}

#[test]
fn wide_resnet_has_pytorchs_losses() {
    let config = WideResNetConfig::new().with_blocks(2).with_width(1);
    assert_trains_as_pytorch("wide-resnet", config.init(&Default::default()));
}

#[test]
fn resnet18_has_pytorchs_losses() {
    let config = ResNetConfig::resnet18().with_width(4);
    assert_trains_as_pytorch("resnet18", config.init(&Default::default()));
}

#[test]
fn efficientnet_lite_has_pytorchs_losses() {
    let network = EfficientNetLiteConfig::new().init(&Default::default());
    assert_trains_as_pytorch("efficientnet-lite0", network);
}

#[test]
fn vision_transformer_has_pytorchs_losses() {
    let config = VitConfig::new(VitFamily::DinoV2, 8, 4, 24, 3, 3);
    for optimizer in ["vit", "vit by adam"] {
        assert_trains_as_pytorch(optimizer, config.init(&Default::default()));
    }
}
