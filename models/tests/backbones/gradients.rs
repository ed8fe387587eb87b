//! Gradients of pretrained networks: those of PyTorch, and one for every parameter.

use std::collections::BTreeMap;

use burn::backend::{Autodiff, Flex};
use burn::module::{ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::nn::RUNNING_AVERAGES;
use fewshot_models::{
    BnStatistics, EfficientNetLiteConfig, Encoder, Pretrained, ResNet12Config, ResNetConfig,
    VitConfig, VitFamily, WideResNetConfig,
};
use tempfile::TempDir;

use super::{Gradients, assert_within, file, golden, images};

type B = Autodiff<Flex>;

/// Collects the gradient of every parameter by its name.
struct Collect<'a> {
    from: &'a <B as AutodiffBackend>::Gradients,
    path: Vec<String>,
    found: BTreeMap<String, Vec<f32>>,
}

impl ModuleVisitor<B> for Collect<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let name = self.path.join(".");
        if RUNNING_AVERAGES.iter().any(|average| name.ends_with(*average)) {
            return;
        }
        let gradient = param.val().grad(self.from);
        let gradient = gradient.unwrap_or_else(|| panic!("{name} has no gradient"));
        self.found.insert(name, gradient.into_data().into_vec().unwrap());
    }
}

/// Gradients of the sum of cubes of the features, those of the images among them.
fn gradients<E: Encoder<B>>(
    network: &E,
    size: [usize; 2],
    statistics: BnStatistics,
) -> BTreeMap<String, Vec<f32>> {
    let images = images::<B>(size).require_grad();
    let features = network.encode(images.clone(), statistics);
    let from = (features.clone() * features.clone() * features).sum().backward();
    let mut collect = Collect { from: &from, path: Vec::new(), found: BTreeMap::new() };
    network.visit(&mut collect);
    let of_images = images.grad(&from).expect("tracked").into_data().into_vec().unwrap();
    collect.found.insert("images".to_owned(), of_images);
    collect.found
}

fn loaded<E: Pretrained<B>>(name: &str, network: E) -> E {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, "", &golden().networks[name].parameters);
    network.load_weights(&file).unwrap()
}

#[test]
fn resnet12_has_pytorchs_gradients() {
    let Gradients { size, running, batch } = golden().gradients;
    let network = loaded("resnet12", ResNet12Config::new().init::<B>(&Default::default()));
    for (statistics, wanted) in [(BnStatistics::Running, running), (BnStatistics::Batch, batch)] {
        let published = |own: String| own.replace("gamma", "weight").replace("beta", "bias");
        let found: BTreeMap<_, _> = gradients(&network, size, statistics)
            .into_iter()
            .map(|(own, gradient)| (published(own), gradient))
            .collect();
        for (name, wanted) in &wanted {
            let gradient = &found[name];
            let squares = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            let typical = (squares / gradient.len() as f64).sqrt() as f32;
            let found = [&[typical], &gradient[..4]].concat();
            assert_within(1e-3, &format!("{name} by {statistics:?}"), &found, wanted);
        }
    }
}

fn every_parameter_has_a_gradient<E: Encoder<B>>(network: &E) {
    for (size, statistics) in [([32; 2], BnStatistics::Running), ([64; 2], BnStatistics::Batch)] {
        for (name, gradient) in gradients(network, size, statistics) {
            let what = format!("{name} of {} by {statistics:?}", network.architecture());
            assert!(gradient.iter().all(|x| x.is_finite()), "{what}");
            // What is added before a norm by the batch is taken away again, but for rounding.
            let none = statistics == BnStatistics::Batch && name.ends_with("beta");
            assert!(none || gradient.iter().any(|x| *x != 0.0), "{what} is zero");
        }
    }
}

#[test]
fn every_parameter_of_a_loaded_network_has_a_gradient() {
    let device = Default::default();
    every_parameter_has_a_gradient(&loaded(
        "resnet18",
        ResNetConfig::resnet18().init::<B>(&device),
    ));
    every_parameter_has_a_gradient(&loaded(
        "efficientnet-lite0",
        EfficientNetLiteConfig::new().init::<B>(&device),
    ));
}

#[test]
fn every_parameter_of_a_narrow_residual_network_has_a_gradient() {
    let device = Default::default();
    let resnet12 = ResNet12Config::new().with_widths([4, 5, 6, 7]);
    every_parameter_has_a_gradient(&resnet12.init::<B>(&device));
    let bottlenecks = ResNetConfig::resnet50().with_width(4);
    every_parameter_has_a_gradient(&bottlenecks.init::<B>(&device));
}

/// Narrow ones: the published ones have the same layers, and tens of millions of parameters.
#[test]
fn every_parameter_of_a_wide_resnet_and_a_vision_transformer_has_a_gradient() {
    let device = Default::default();
    let wide = WideResNetConfig::new().with_blocks(2).with_width(2);
    every_parameter_has_a_gradient(&wide.init::<B>(&device));
    for family in [VitFamily::DinoV2, VitFamily::Clip, VitFamily::ClipGelu] {
        let transformer = VitConfig::new(family, 16, 3, 12, 2, 3).with_registers(2);
        every_parameter_has_a_gradient(&transformer.init::<B>(&device));
    }
}
